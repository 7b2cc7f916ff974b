"""Windows and totals kept on Kafka, by partition."""
