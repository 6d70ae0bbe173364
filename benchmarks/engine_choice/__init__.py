"""Which engine without a JVM answers Spark's queries: Sail as it is, or by skep's translator, each beside Spark."""
