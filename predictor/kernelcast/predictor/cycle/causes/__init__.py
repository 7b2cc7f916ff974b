"""Causes of the findings of a cycle: metrics of GPUs on one grid, faults of GPUs, causes of breaches."""
