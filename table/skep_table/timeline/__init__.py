"""The timeline: what happened to a table, in order. Instants, their files by layout version, and what these contain."""
