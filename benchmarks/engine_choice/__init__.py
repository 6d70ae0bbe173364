"""Which engine without a JVM answers Spark's queries: DuckDB by skep's translator, or Sail, each beside Spark."""
