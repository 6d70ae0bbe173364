"""AWS Glue's data catalog in the place of a Hive Metastore."""
