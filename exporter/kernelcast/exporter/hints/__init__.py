"""Hints from Kafka to programs, and outcomes back."""
