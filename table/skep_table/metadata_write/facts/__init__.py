"""What the indexes record of files and keys, as it is found in them."""
