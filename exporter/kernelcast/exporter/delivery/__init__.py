"""Delivery to Kafka: encoding, the producer, and the backlog on disk."""
