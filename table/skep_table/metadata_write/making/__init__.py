"""A new metadata table, or new partitions of one."""
