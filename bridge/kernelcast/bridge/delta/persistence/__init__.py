"""Snapshots of running totals on Kafka: written, read, and restored."""
