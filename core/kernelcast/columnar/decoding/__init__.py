"""OTLP messages to columns."""
