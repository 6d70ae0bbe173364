"""Statements from text: words, tokens, statements as values; no name is looked up."""
