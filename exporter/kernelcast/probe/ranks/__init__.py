"""Collective tunables: one decision for all ranks of a job."""
