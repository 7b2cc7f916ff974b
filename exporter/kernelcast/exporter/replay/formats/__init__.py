"""Readers of trace formats."""
