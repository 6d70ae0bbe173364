"""SQL statements over Hudi tables: parsed, bound to a catalog, and carried out by tables and an engine for queries."""
