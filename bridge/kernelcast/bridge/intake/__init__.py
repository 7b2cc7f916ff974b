"""Reading Kafka: partitions that come and go, batches, what is skipped or put aside."""
