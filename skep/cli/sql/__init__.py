"""`skep sql`, and its shell."""
