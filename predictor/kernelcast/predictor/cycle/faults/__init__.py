"""Faults that need no limit, as candidate findings: of GPUs, slower deploys, GPUs slower than the fleet, stragglers."""
