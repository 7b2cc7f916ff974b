"""Decorated calls whose configuration is searched and proved while the program works."""

from kernelcast.probe.tuned.calls import TunedCalls
from kernelcast.probe.tuned.checks import close, finite
from kernelcast.probe.tuned.terms import CallCampaign, CallRequest

__all__ = ["CallCampaign", "CallRequest", "TunedCalls", "close", "finite"]
