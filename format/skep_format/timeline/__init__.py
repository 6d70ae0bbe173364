"""The timeline: instants in order, the files that store them in each layout, and the contents of these files."""
