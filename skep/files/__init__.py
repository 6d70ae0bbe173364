"""Files of rows that `skep write` takes."""
