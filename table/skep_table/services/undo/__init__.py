"""Back to an earlier state: rollback, savepoint, restore."""
