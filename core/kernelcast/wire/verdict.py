"""What a program's phases say about it, in one sentence: the same words in the view and in the probe's own report."""

from collections.abc import Mapping
from typing import Final

from kernelcast.wire.catalogue.diagnosis.rules import RULES

INPUT_BOUND: Final = next(rule.thresholds[0].limit for rule in RULES if rule.name == "input_bound")
"""Share of the step that waits for data from which a program is input-bound."""
LARGE: Final = 0.2
"""Share of the time from which a phase beside training is worth a sentence."""
BESIDE: Final = {
    "compilation": "compilation; a longer run has less of it",
    "checkpoint": "saving checkpoints",
    "evaluation": "evaluation",
}
"""Phases that do not train, in the words of a verdict."""


def verdict(phase_seconds: Mapping[str, float], gpu_idle_ratio: float | None = None) -> str:
    """Return the most important fact about where the time went, in one sentence; empty without phases.

    >>> verdict({"data": 3.8, "forward": 3.0, "backward": 3.2})
    'input-bound: 38 % of the step waits for data'
    """
    total_seconds = sum(phase_seconds.values())
    if not total_seconds:
        return ""
    share = {name: seconds / total_seconds for name, seconds in phase_seconds.items()}
    if share.get("data", 0.0) >= INPUT_BOUND:
        return f"input-bound: {share['data'] * 100:.0f} % of the step waits for data"
    for phase, words in BESIDE.items():
        if share.get(phase, 0.0) >= LARGE:
            return f"{share[phase] * 100:.0f} % of the time is {words}"
    if gpu_idle_ratio is not None and gpu_idle_ratio >= LARGE:
        return f"host-bound: the GPU is idle for {gpu_idle_ratio * 100:.0f} % of the time"
    trains = share.get("forward", 0.0) + share.get("backward", 0.0)
    waits = f", data {share['data'] * 100:.0f} %" if "data" in share else ""
    if trains >= 0.5:
        return f"compute-bound: forward and backward take {trains * 100:.0f} % of the step{waits}"
    largest = max(share, key=lambda name: share[name])
    percent = f"{share[largest] * 100:.0f} %"
    is_unknown = largest == "other" and not trains
    return (
        f"the step's own work takes {percent} of the time; its phases are not known"
        if is_unknown
        else f"{largest} takes most of the step, {percent}{waits}"
    )
