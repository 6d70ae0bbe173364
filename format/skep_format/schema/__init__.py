"""The schema of a table: neutral types, and pure functions to and from Avro and Arrow."""
