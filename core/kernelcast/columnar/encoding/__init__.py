"""Samples to OTLP messages."""
