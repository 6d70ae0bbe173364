"""Tables as frames of Spark."""
