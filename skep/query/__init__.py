"""Rows and queries: frames, conditions and SQL, in this process or by Spark."""
