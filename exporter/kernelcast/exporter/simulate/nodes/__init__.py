"""Nodes of a simulated fleet: their drivers' answers, and the series that the exporter's sources make of them."""
