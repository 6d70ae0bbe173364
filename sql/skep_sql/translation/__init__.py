"""Queries of Spark's dialect as queries of DuckDB with the same meaning."""
