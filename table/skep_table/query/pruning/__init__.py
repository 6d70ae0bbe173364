"""What a filter leaves: partitions, file groups, file slices."""
