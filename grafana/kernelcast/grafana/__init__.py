"""Dashboards, rules and configurations, generated from the catalogue that the other parts emit from."""
