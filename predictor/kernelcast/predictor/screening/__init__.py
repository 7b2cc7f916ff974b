"""Robust statistics of many series at once."""
