"""First passage: when simulated paths cross a threshold, and how many never do."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.series.subjects import Subject
from kernelcast.wire.catalogue.meanings import Cause

QUANTILES: Final = (0.1, 0.5, 0.9)


@dataclass(frozen=True, slots=True)
class FirstPassage:
    """Time at which a series first crosses a threshold, as a distribution over simulated paths.

    Attributes:
        probability: By horizon in seconds: share of paths that have crossed by then.
        seconds: By quantile: time until that share of all paths has crossed; absent where it never does.
    """

    probability: dict[float, float]
    seconds: dict[float, float]


@dataclass(frozen=True, slots=True)
class Degradation:
    """One prediction: the series, the threshold, the time and probability of crossing it, and the cause."""

    subject: Subject
    cause: Cause
    threshold: float
    passage: FirstPassage
    evidence: tuple[tuple[str, float], ...] = ()


def first_passage(
    paths: Floats, threshold: float, *, step_seconds: float, horizons_seconds: tuple[float, ...]
) -> FirstPassage:
    """Find when simulated paths rise over a threshold for two steps in a row; one noisy value is no crossing.

    Args:
        paths: Shape (paths, steps).
        threshold: In the paths' unit.
        step_seconds: Time between steps.
        horizons_seconds: Ascending; none beyond the last step.
    """
    over = paths > threshold
    lasting = over.copy()
    lasting[:, :-1] &= over[:, 1:]
    crosses = lasting.any(axis=1)
    times = np.where(crosses, (np.argmax(lasting, axis=1) + 1) * step_seconds, np.inf)
    probability = {horizon: float((times <= horizon).mean()) for horizon in horizons_seconds}
    reached = {quantile: float(np.quantile(times, quantile, method="higher")) for quantile in QUANTILES}
    return FirstPassage(probability, {quantile: time for quantile, time in reached.items() if np.isfinite(time)})


def already_passed(horizons_seconds: tuple[float, ...]) -> FirstPassage:
    """The passage of a series that is over its threshold now."""
    return FirstPassage(dict.fromkeys(horizons_seconds, 1.0), dict.fromkeys(QUANTILES, 0.0))
