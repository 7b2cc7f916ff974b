"""Sums the reports of processes to series that never fall."""
