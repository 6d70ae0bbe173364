"""Files of rows as Arrow tables: CSV and JSON, with and without a schema, and Parquet, ORC and Avro."""
