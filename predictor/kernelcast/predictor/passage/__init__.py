"""First passage of many series at once: when each reaches its limit, with which probability, and when to alert.

Pure functions of arrays, which live cycles (`cycle.detection`), backtests and benchmarks share; `run` is the entry.
"""
