"""Prometheus' text formats in."""
