"""Schema providers, and the registry of schemas."""
