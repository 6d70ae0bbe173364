"""What real Spark answers, and which of its functions the engine without a JVM answers alike."""
