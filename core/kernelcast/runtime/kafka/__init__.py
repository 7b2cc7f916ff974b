"""Kafka clients: consumer, producer, administration, and the errors of librdkafka in our words."""
