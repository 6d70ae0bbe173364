"""Instants that failed, or are to be taken back: rollback, restore, recovery."""
