"""File sources: which files of a folder a round reads, and the rows in them."""
