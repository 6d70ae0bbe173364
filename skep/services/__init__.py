"""Table services of the front door: how they run after commits, in modes for the command line, and as methods."""
