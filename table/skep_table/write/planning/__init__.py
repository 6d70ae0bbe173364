"""What is decided before the first file is written."""
