"""The service: receives commits over HTTP and Kafka, watches timelines, and keeps metastores up to date."""
