"""Translates OTLP names, attributes and types to Prometheus' names, labels and kinds."""
