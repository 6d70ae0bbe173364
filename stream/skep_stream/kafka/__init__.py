"""Topics of Kafka as sources: offsets of a round, its messages, and their rows."""
