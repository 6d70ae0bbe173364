"""Statements carried out: what each changes or shows."""
