"""Saves and restores a partition's series: pages of whole series in turn, and additions in columns."""
