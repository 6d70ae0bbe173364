"""Protobuf: types of messages by their descriptors, and messages as Arrow columns."""
