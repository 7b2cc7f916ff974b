"""Prometheus remote write out."""
