"""Scores of one campaign on a recorded space.

The performance score (Willemsen et al., arXiv 2509.26300): the mean over evaluations of (R - F) / (R - optimum). F is
the time of the best configuration so far and R its expectation under random search; 0 is random search, 1 the optimum
at once. Here it runs over the evaluations up to the budget, and R is exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from kernelcast.tuning.formats.kernel_tuner import KernelTunerRecording
from kernelcast.tuning.space import Value

Configuration = tuple[Value, ...]


@dataclass(frozen=True)
class Truth:
    """The optimum of a recorded space, and the expectation of random search by number of evaluations."""

    optimum: float
    expected: Sequence[float]

    @classmethod
    def of(cls, recording: KernelTunerRecording, budget: int) -> "Truth":
        """Compute both."""
        times = sorted(recording.typical.values())
        return cls(times[0], expected_minimum(times, len(recording.entries) - len(times), budget))


def expected_minimum(times: Sequence[float], failing: int, budget: int) -> list[float]:
    """Return the expected least time of k draws without replacement, given that one draw works; k from 1 to the budget.

    Args:
        times: Times of the configurations that work, sorted.
        failing: Number of the others.
        budget: Largest k.
    """
    total = len(times) + failing
    found = []
    for draws in range(1, min(budget, total) + 1):
        # Probability that all draws are among the configurations after the first `place` ones.
        beyond, mean, working = 1.0, 0.0, 0.0
        for place, time in enumerate(times):
            left = total - place
            here = beyond * draws / left
            mean += here * time
            working += here
            beyond -= here
            if beyond < 1e-12:
                break
        found.append(mean / working)
    return found + [found[-1]] * (budget - len(found))


@dataclass(frozen=True)
class Score:
    """Figures of one campaign.

    Attributes:
        performance: The performance score.
        best: Best time over the optimum after each evaluation.
        excess: Mean time of the different configurations that worked, over the optimum, less 1.
        failing: Share of failing configurations.
        failing_late: The same after 50 evaluations.
        lost: Time of first launches above the start's, over the start's time for as many.
        kept: Time of the kept configuration over the optimum.
        launches: Launches in all.
    """

    performance: float
    best: Sequence[float]
    excess: float
    failing: float
    failing_late: float
    lost: float
    kept: float
    launches: int


def score(
    recording: KernelTunerRecording, truth: Truth, order: Sequence[Configuration], kept: Configuration, launches: int
) -> Score:
    """Score the configurations of a campaign in the order of their first launches."""
    times = [recording.typical.get(configuration) for configuration in order]
    best: list[float] = []
    for time in times:
        known = best[-1] if best else max(recording.typical.values())
        best.append(known if time is None else min(known, time))
    best += [best[-1]] * (len(truth.expected) - len(best))
    gains = [(r - f) / (r - truth.optimum) for r, f in zip(truth.expected, best, strict=True) if r > truth.optimum]
    working = [time for time in times if time is not None]
    start = working[0]
    late = times[50:] or [0.0]
    return Score(
        fmean(gains),
        [time / truth.optimum for time in best],
        fmean(working) / truth.optimum - 1,
        times.count(None) / len(times),
        late.count(None) / len(late),
        sum(max(0.0, time - start) for time in working) / (start * len(working)),
        recording.typical[kept] / truth.optimum,
        launches,
    )


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and its 95 % interval; for 20 or more values."""
    mean = fmean(values)
    half = 1.96 * stdev(values) / sqrt(len(values)) if len(values) > 1 else float("inf")
    return mean, mean - half, mean + half


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile, linear between the values."""
    ranked = sorted(values)
    place = share * (len(ranked) - 1)
    low = int(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (place - low) * (ranked[high] - ranked[low])
