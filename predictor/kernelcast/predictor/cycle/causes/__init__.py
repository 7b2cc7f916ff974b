"""Causes in a cycle: inputs of the rules (metrics of GPUs on one grid), faults of GPUs, causes of breaches, deploys."""
