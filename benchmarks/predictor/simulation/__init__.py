"""Simulated faults with a known truth, and what only looks like them."""
