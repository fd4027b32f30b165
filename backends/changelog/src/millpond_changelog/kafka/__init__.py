"""The log in Kafka, on confluent-kafka; the driver is imported by nothing outside this package."""
