"""From what callers bring to rows as the table has them."""
