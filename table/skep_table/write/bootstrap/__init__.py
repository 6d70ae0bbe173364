"""Bootstraps: a table made of a folder of Parquet or ORC files, which stay where they are or are written again."""
