"""What decides between writers of one table."""
