"""Answers of the rules about programs to recorded profiler traces."""

from benchmarks.predictor.diagnosis.traces import run, table

__all__ = ["run", "table"]
