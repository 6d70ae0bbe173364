"""Commands for streams, pipelines and pulls."""
