"""Table services that need no Spark: clean, archive, savepoint, rollback, restore.

Each has a plan on the timeline that any process may carry out, and goes on where an executor died.
"""
