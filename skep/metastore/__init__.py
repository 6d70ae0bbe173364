"""Entries, locks and syncs of a lake's metastore."""
