"""Prometheus remote write in."""
