"""From rows to files: base files, log files, change logs."""
