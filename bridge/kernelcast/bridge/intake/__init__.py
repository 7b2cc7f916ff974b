"""Reads Kafka into the store: assignments, batches, skipped messages and dead letters."""
