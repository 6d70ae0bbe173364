"""Streams: sources, schema providers, transformers and checkpoints; each round is one commit of the target."""
