"""Compaction and log compaction of the metadata table."""
