"""Decorated calls, and steps, whose configuration is searched and proved while the program works.

Words of this room: a *configuration* has a value for each parameter of a space; its *ordinal* is its number. A
*campaign* chooses which one to measure next, and proves the best one by an experiment. *Kept* is the one in force.
"""

from kernelcast.probe.tuned.calls import TunedCalls
from kernelcast.probe.tuned.checks import close, finite
from kernelcast.probe.tuned.terms import CallCampaign, CallRequest

__all__ = ["CallCampaign", "CallRequest", "TunedCalls", "close", "finite"]
