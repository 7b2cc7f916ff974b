"""Recorded and simulated traces of training jobs, for the benchmark of stragglers."""
