"""The commit protocol: instants, markers, completion under the lock, rollback of what failed, creation of tables."""
