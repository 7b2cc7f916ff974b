"""Decorated calls whose configuration is searched and proved while the program works."""

from kernelcast.probe.tuned.calls import TunedCalls
from kernelcast.probe.tuned.checks import close, finite
from kernelcast.probe.tuned.terms import Campaign, Request

__all__ = ["Campaign", "Request", "TunedCalls", "close", "finite"]
