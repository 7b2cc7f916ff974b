"""Recordings of other profilers as an input of the exporter."""

from kernelcast.exporter.replay.source import TraceSource
from kernelcast.exporter.replay.trace import Trace

__all__ = ["Trace", "TraceSource"]
