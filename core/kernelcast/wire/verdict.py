"""What a program's phases say about it, in one sentence: the same words in the view and in the probe's own report."""

from collections.abc import Mapping
from typing import Final

from kernelcast.wire.catalogue.diagnosis.rules import RULES

INPUT_BOUND: Final = "input-bound"
_INPUT_BOUND_SHARE: Final = next(rule for rule in RULES if rule.name == "input_bound").thresholds[0].limit
"""Share of the step that waits for data from which a program is input-bound: the limit of the diagnosis rule."""
_WORK: Final = ("forward", "backward", "optimizer")
_NAMED_SHARE: Final = 0.1
"""Share of any other phase from which the sentence names it."""


def verdict(shares: Mapping[str, float]) -> str:
    """Say what a program's time goes into; empty without phases.

    >>> verdict({"data": 0.38, "forward": 0.3, "backward": 0.3, "optimizer": 0.02})
    'input-bound: 38 % of the step waits for data'

    Args:
        shares: Share of each phase of `wire.frames.PHASES`; together 1.
    """
    if not shares:
        return ""
    data = shares.get("data")
    if data is not None and data >= _INPUT_BOUND_SHARE:
        return f"{INPUT_BOUND}: {data:.0%} of the step waits for data".replace("%", " %")
    others = {phase: share for phase, share in shares.items() if phase not in (*_WORK, "data")}
    largest = max(others, key=lambda phase: others[phase], default="")
    if largest and others[largest] >= _NAMED_SHARE:
        where = "outside of forward, backward and optimizer" if largest == "other" else f"in {largest}"
        return f"{others[largest]:.0%} of the step is {where}".replace("%", " %")
    work = f"{sum(shares.get(phase, 0.0) for phase in _WORK):.0%}".replace("%", " %")
    return f"{work} of the step is work" + ("" if data is not None else "; the wait for data is unknown")
