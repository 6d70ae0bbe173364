"""Rows that keep coming: streams, pipelines, pulls."""
