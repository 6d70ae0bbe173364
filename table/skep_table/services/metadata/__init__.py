"""Services of the metadata table, and its indexes built beside writers."""
