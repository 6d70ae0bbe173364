"""Sources without files and messages: Hudi tables, databases, queries, incremental pulls."""
