"""Commands that sync tables."""
