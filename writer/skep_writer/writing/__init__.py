"""Frames of Spark written into tables."""
