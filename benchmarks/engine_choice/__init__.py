"""Which engine without a JVM answers Spark's queries: DuckDB, DataFusion or Sail, each beside Spark."""
