"""Table services of the front door: how they run, as methods and after commits."""
