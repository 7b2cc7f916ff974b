"""Dashboards in the browser: the pages of Grafana's model, drawn without Grafana."""
