"""What a program's phases say about it, in one sentence: the same words in the view and in the probe's own report."""

from collections.abc import Collection, Mapping
from typing import Final

LARGE: Final = 0.2
"""Share of the time from which waiting for data, or a phase beside training, is the thing to say about a program.

The program is input-bound only where data is the largest phase, too: below another one a better loader is not what
would save most. The advice to prefetch more comes earlier (the rule `input_bound`, 5 %): it costs little, and does not
name the bound."""
BESIDE: Final = {
    "compilation": "compilation; a longer run has less of it",
    "checkpoint": "saving checkpoints",
    "evaluation": "evaluation",
}
"""Phases that do not train, in the words of a verdict."""


def phase_label(phase: str, measured: Collection[str]) -> str:
    """Return the name of a phase for people.

    Args:
        phase: One of a program's phases.
        measured: All that it has had. Without `data` the waits for data are in `forward`.

    >>> phase_label("forward", {"forward", "backward"})
    'forward or data'
    """
    return "forward or data" if phase == "forward" and "data" not in measured else phase


def verdict(phase_seconds: Mapping[str, float], gpu_idle_ratio: float | None = None, *, has_peers: bool = False) -> str:
    """Return the most important fact about where the time went, in one sentence; empty without phases.

    Args:
        phase_seconds: Time by phase. Without `data` the waits for data are in `forward`, and unknown.
        gpu_idle_ratio: Idle share of the GPU's measured time; None where that is not known.
        has_peers: Whether other ranks work on the same job: backward then includes the wait for them.

    >>> verdict({"data": 3.8, "forward": 3.0, "backward": 3.2})
    'input-bound: 38 % of the step waits for data'
    >>> verdict({"data": 3.9, "forward": 0.8, "optimizer": 5.3})
    'the largest part of the step is optimizer, 53 %; 39 % waits for data'
    """
    total_seconds = sum(phase_seconds.values())
    if not total_seconds:
        return ""
    share = {name: seconds / total_seconds for name, seconds in phase_seconds.items()}
    waits, largest = share.get("data", 0.0), max(share.values())
    if LARGE <= waits == largest:
        return f"input-bound: {waits * 100:.0f} % of the step waits for data"
    beside = max(BESIDE, key=lambda phase: share.get(phase, 0.0))
    if share.get(beside, 0.0) >= max(LARGE, waits):
        return f"{share[beside] * 100:.0f} % of the time is {BESIDE[beside]}"
    if waits >= LARGE:
        return f"{_largest_part(share)}; {waits * 100:.0f} % waits for data"
    if gpu_idle_ratio is not None and gpu_idle_ratio >= LARGE:
        return f"host-bound: the GPU is idle for {gpu_idle_ratio * 100:.0f} % of the time"
    return _of_training(share, has_peers=has_peers)


def _of_training(share: Mapping[str, float], *, has_peers: bool) -> str:
    forward = share.get("forward", 0.0)
    if "data" not in share and forward >= LARGE:
        return f"forward or data: {forward * 100:.0f} % of the step; probe.data(batches) tells them apart"
    trains = forward + share.get("backward", 0.0)
    waits = f", data {share['data'] * 100:.0f} %" if "data" in share else ""
    if trains >= 0.5 and has_peers:
        return f"forward, backward and the wait for other ranks take {trains * 100:.0f} %{waits}"
    if trains >= 0.5:
        return f"compute-bound: forward and backward take {trains * 100:.0f} % of the step{waits}"
    if not trains and share.get("other", 0.0) == max(share.values()):
        return f"the step's own work takes {share['other'] * 100:.0f} % of the time; its phases are not known"
    return f"{_largest_part(share)}{waits}"


def _largest_part(share: Mapping[str, float]) -> str:
    largest = max(share, key=lambda name: share[name])
    name = "other work" if largest == "other" else largest
    return f"the largest part of the step is {name}, {share[largest] * 100:.0f} %"
