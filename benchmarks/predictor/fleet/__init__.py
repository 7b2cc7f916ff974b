"""Faults in a simulated fleet: which are paged, on which GPU, with which cause, and how many pages there are."""

from benchmarks.predictor.fleet.benchmark import run, table

__all__ = ["run", "table"]
