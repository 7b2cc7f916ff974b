"""Compiled functions that add delta points to running totals."""
