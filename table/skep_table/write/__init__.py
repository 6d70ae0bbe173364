"""Writing rows: tagging with file groups, buckets, merging base files; functions of Arrow data that any Runner runs."""
