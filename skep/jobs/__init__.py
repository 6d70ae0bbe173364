"""PySpark jobs that were written for Hudi."""
