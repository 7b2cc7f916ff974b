"""What a value costs once, as compiling does, beside what it gains with each launch.

An experiment leaves that cost out, because it does not recur. Here it prevents that a value is kept for which a run of
the program is too short.
"""

from collections.abc import Sequence
from typing import Final

from kernelcast.tuning.experiment import Decision, ExperimentVerdict, Rules
from kernelcast.tuning.times import duration

FIRST_RATIO: Final = 2.0
"""A first launch of this many times a later one does something once."""
UNMENTIONED_SECONDS: Final = 10.0
"""Time within which first launches are paid back unmentioned."""


def paid_back(
    verdict: ExperimentVerdict, first_launches: Sequence[float], launch_seconds: float, rules: Rules
) -> tuple[Decision, str]:
    """Return a verdict's decision and reason, with the time in which a value pays back what its first launches took.

    Args:
        verdict: The verdict; only one that keeps the value can change.
        first_launches: Times of the value's first launches, in usual ones of the kept configuration.
        launch_seconds: Seconds of a usual launch; 0 where they are not known.
        rules: Its `run_seconds` is the time in which the value must pay.
    """
    if verdict.decision is not Decision.KEPT or verdict.ratio is None or verdict.ratio >= 1:
        return verdict.decision, verdict.reason
    cost = sum(one - verdict.ratio for one in first_launches if one > FIRST_RATIO * verdict.ratio)
    seconds = cost / (1 - verdict.ratio) * launch_seconds
    if seconds < UNMENTIONED_SECONDS:
        return verdict.decision, verdict.reason
    reason = f"{verdict.reason}; what its first launches took is paid back after {duration(seconds)}"
    if seconds <= rules.run_seconds:
        return verdict.decision, reason
    return Decision.ROLLED_BACK, f"{reason}, and a run is taken to last {duration(rules.run_seconds)}"
