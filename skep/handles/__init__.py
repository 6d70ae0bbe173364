"""Tables by name and by path, their writes, and the statements over them."""
