"""What takes part in a commit beside the timeline."""
