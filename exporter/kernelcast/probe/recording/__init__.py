"""Cumulative totals of one process, in fixed memory."""
