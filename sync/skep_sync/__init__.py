"""Keeps the Hive Metastore true to Hudi tables: a pure plan of typed steps, then applying it."""
