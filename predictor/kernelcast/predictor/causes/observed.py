"""Input of the features: metrics of GPUs or of kernels on them, on one grid, and facts about their surroundings.

`cycle` and `backtest.causes` fill it; `device_features` and `program_features` read it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.passage.baseline import last_true
from kernelcast.predictor.passage.series import BLOCK_SECONDS, condense
from kernelcast.predictor.robust import row_last, row_medians, row_quantiles
from kernelcast.wire.catalogue.model import Metric

HOUR_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class Around:
    """Facts that are no metric of the row itself; None where they are not known. n rows, t intervals.

    Attributes:
        node: Shape (n,), number of each GPU's node.
        programs: Shape (n, t), programs on the GPU.
        siblings: Shape (n, k, t), durations of other kernels on the same GPU; NaN for former versions and missing ones.
        group: Shape (n,), rows of one group are peers: GPUs of one model, in one program, with one kernel. Only the
            benchmark of a fleet sets it; live, `cycle.faults.stragglers` compares workers.
        fleet: Shape (n,), usual duration on other nodes; NaN for none.
        clock: Shape (n,), usual SM clock of the GPU under load; NaN where it is not known.
        fleet_clock: Shape (n,), usual SM clock of the GPUs of other nodes under load; NaN where it is not known.
        process: Shape (n, t), how often the process has been replaced.
        version: Shape (n, t), number of the code or driver version; live, of the regime.
        baseline: Shape (n,), usual duration, learnt elsewhere; NaN where it is not.
        limits: Limit of a metric, shape (n,), by Prometheus name, where a person set it.
        beyond: Shape (n,), 1 where the judged series is at or beyond its limit.
    """

    node: Ints | None = None
    programs: Floats | None = None
    siblings: Floats | None = None
    group: Ints | None = None
    fleet: Floats | None = None
    clock: Floats | None = None
    fleet_clock: Floats | None = None
    process: Ints | None = None
    version: Ints | None = None
    baseline: Floats | None = None
    limits: Mapping[str, Floats] = field(default_factory=dict)
    beyond: Floats | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """Metrics of n rows at t intervals, the newest last; a row is a GPU, or a kernel of a program on a GPU.

    Attributes:
        values: Shape (n, t) by Prometheus name, NaN for gaps. Counters as they are, not as rates. Metrics that a GPU
            has several times (for each NVLink, for each XID) are summed.
        interval_seconds: Length of an interval, at most 5 minutes.
        labels: Labels of each row, sorted pairs.
        end_ns: Shape (n,), end of each row's newest interval.
        around: What else is known.
    """

    values: Mapping[str, Floats]
    interval_seconds: float
    labels: Sequence[tuple[tuple[str, str], ...]]
    end_ns: Sequence[int]
    around: Around = field(default_factory=Around)

    def __len__(self) -> int:
        return len(self.labels)

    def get(self, metric: Metric) -> Floats | None:
        """The values of a metric."""
        return self.values.get(metric.prometheus_name)

    def limit(self, metric: Metric, limit: Metric) -> Floats | None:
        """Limit of a metric, shape (n,): the one that a person set, else the newest value of another metric."""
        limits = self.around.limits.get(metric.prometheus_name)
        if limits is not None:
            return limits
        values = self.get(limit)
        return None if values is None else row_last(values)

    def intervals(self, seconds: float) -> int:
        """Number of intervals in a time, at least one."""
        return max(round(seconds / self.interval_seconds), 1)

    def now(self, values: Floats) -> Floats:
        """Median of the last 5 minutes, shape (n,)."""
        return row_medians(values[:, -self.intervals(BLOCK_SECONDS) :])

    def mean_now(self, values: Floats) -> Floats:
        """Mean of the last 5 minutes, shape (n,): the mean that decides on a breach."""
        recent = values[:, -self.intervals(BLOCK_SECONDS) :]
        known = np.isfinite(recent)
        count = known.sum(axis=1)
        return np.where(count > 0, np.where(known, recent, 0.0).sum(axis=1) / np.maximum(count, 1), np.nan)

    def blocks(self, values: Floats) -> Floats:
        """Means of blocks of 5 minutes that end with the newest interval, shape (n, b)."""
        width = self.intervals(BLOCK_SECONDS)
        return condense(values[:, values.shape[1] % width :], width)[0]


def filled(values: Floats) -> Floats:
    """Gaps filled with the value before them."""
    known = np.isfinite(values)
    place = np.maximum.accumulate(np.where(known, np.arange(values.shape[1]), 0), axis=1)
    return np.take_along_axis(values, place, axis=1)


def changed_at(numbers: Ints) -> Ints:
    """Place of the last change of each row, shape (n,); 0 where there is none."""
    change = np.zeros(numbers.shape, dtype=np.bool_)
    change[:, 1:] = numbers[:, 1:] != numbers[:, :-1]
    return last_true(change)


def before_version(numbers: Ints, opening: int) -> Bools:
    """Intervals before the present version of each row, and the first ones of it, shape (n, t).

    Args:
        numbers: Shape (n, t), number of the version.
        opening: Number of first intervals, which are not its usual speed; none are left out where it never changed.
    """
    at = changed_at(numbers)[:, None]
    return np.arange(numbers.shape[1]) < at + np.where(at > 0, opening, 0)


def usual_low(values: Floats) -> Floats:
    """Median of the lower cluster of each row, shape (n,): the usual duration, also where a part of it is slow.

    The cluster is all within 10 per cent of the tenth percentile, as in `passage.baseline`.
    """
    low = row_quantiles(values, 0.1)
    return row_medians(np.where(values <= 1.1 * low[:, None], values, np.nan))


def usual_high(values: Floats) -> Floats:
    """Median of the upper cluster of each row, shape (n,): the usual clock, also where it was low for hours."""
    high = -row_quantiles(-values, 0.1)
    return row_medians(np.where(values >= high[:, None] / 1.1, values, np.nan))
