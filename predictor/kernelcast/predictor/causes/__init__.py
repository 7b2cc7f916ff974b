"""Causes with evidence from features of GPUs and of kernels on them, and baselines of the fleet."""
