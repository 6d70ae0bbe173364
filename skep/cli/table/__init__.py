"""Commands for one table."""
