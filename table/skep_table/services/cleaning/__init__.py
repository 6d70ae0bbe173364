"""What deletes or moves what nobody needs any more: clean, archive, expiry of partitions."""
