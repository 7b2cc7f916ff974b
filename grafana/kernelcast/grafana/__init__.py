"""Generates dashboards, rules and configurations from the catalogue of metrics. `kernelcast grafana` runs it."""
