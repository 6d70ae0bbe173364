"""Small faults that the tests of a commit must find; see __main__.py."""
