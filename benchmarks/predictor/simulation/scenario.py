"""Simulated series with a known truth: values, companions, limit, onset and breach."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Bools, Floats, Ints

NEVER: Final = -1
"""As an index: it does not happen."""
BREACH_SECONDS: Final = 300.0
"""A breach is the mean over this time at or beyond the limit."""
DRIFTS: Final = ("thermal-drift", "ageing-kernel", "memory-leak", "load-growth")
CONTENTION: Final = "contention"
NEGATIVES: Final = (
    "hot-but-stable",
    "warm-up",
    "load-step",
    "deploy",
    "restart",
    "sawtooth",
    "preallocation",
    "diurnal",
    "healthy-kernel",
)
CLASSES: Final = (*DRIFTS, CONTENTION, *NEGATIVES)


@dataclass(frozen=True, slots=True, eq=False)
class Scenarios:
    """Simulated series on one grid; n series of t intervals, of which the first `history` are not scored.

    Attributes:
        classes: Class of each series, of `CLASSES`.
        metrics: Prometheus name of each.
        interval_seconds: Length of an interval.
        history: Intervals before the evaluation begins.
        values: Shape (n, t).
        limit: Shape (n, t), the true limit: a kernel's follows the version that runs. Higher is worse for all.
        limit_is_known: Shape (n,); False where a detector must learn it as a multiple of the series' own baseline.
        process: Shape (n, t), how often the process has been replaced; every series of a program shows that.
        version: Shape (n, t), number of the code version; -1 where the series does not say.
        companions: By Prometheus name, shape (n, t), NaN for series without companions.
        onset: Shape (n,), first interval of the fault; `NEVER` for a series without one.
        breach: Shape (n,), first interval that is a breach by the definition; `NEVER` where there is none.
        programs: Shape (n, t), programs on the GPU; NaN for series without companions. None where it is not simulated.
        siblings: Shape (n, k, t), durations of other kernels of the program; as `programs`.
    """

    classes: NDArray[np.str_]
    metrics: NDArray[np.str_]
    interval_seconds: float
    history: int
    values: Floats
    limit: Floats
    limit_is_known: Bools
    process: Ints
    version: Ints
    companions: Mapping[str, Floats]
    onset: Ints
    breach: Ints
    programs: Floats | None = None
    siblings: Floats | None = None

    def __len__(self) -> int:
        return len(self.classes)

    @property
    def length(self) -> int:
        """Intervals of each series."""
        return int(self.values.shape[1])

    @property
    def days(self) -> Floats:
        """Shape (n,), days of the evaluation."""
        return np.full(len(self), (self.length - self.history) * self.interval_seconds / 86_400.0)

    @property
    def is_drift(self) -> Bools:
        """Shape (n,), faults that begin slowly and do breach."""
        found: Bools = np.isin(self.classes, DRIFTS) & (self.breach != NEVER)
        return found

    @property
    def is_contention(self) -> Bools:
        """Shape (n,), contention that does breach."""
        found: Bools = (self.classes == CONTENTION) & (self.breach != NEVER)
        return found

    @property
    def is_negative(self) -> Bools:
        """Shape (n,), no fault and no breach: a series that breaches by the definition is no negative."""
        found: Bools = np.isin(self.classes, NEGATIVES) & (self.breach == NEVER)
        return found

    @property
    def beyond(self) -> Bools:
        """Shape (n, t), whether the breach's definition holds at an interval."""
        return breaches(self.values, self.limit, self.interval_seconds)

    def select(self, chosen: NDArray[np.bool_] | Ints) -> "Scenarios":
        """A part of the series."""
        return Scenarios(
            self.classes[chosen],
            self.metrics[chosen],
            self.interval_seconds,
            self.history,
            self.values[chosen],
            self.limit[chosen],
            self.limit_is_known[chosen],
            self.process[chosen],
            self.version[chosen],
            {name: values[chosen] for name, values in self.companions.items()},
            self.onset[chosen],
            self.breach[chosen],
            None if self.programs is None else self.programs[chosen],
            None if self.siblings is None else self.siblings[chosen],
        )


def breaches(values: Floats, limit: Floats, interval_seconds: float, *, lasting: float = BREACH_SECONDS) -> Bools:
    """Whether the mean over `lasting` seconds up to each interval is at or beyond the limit.

    Where the limit changes, as with another version, each value counts relative to the limit of its own interval.

    Args:
        values: Shape (n, t), without NaN.
        limit: Shape (n, t) or (n, 1), above 0.
        interval_seconds: Length of an interval.
        lasting: Length of the mean; at least one interval.

    Returns:
        Shape (n, t); False where fewer intervals than that have passed.
    """
    width = max(round(lasting / interval_seconds), 1)
    sums = np.cumsum(np.pad(values / limit, ((0, 0), (1, 0))), axis=1)
    beyond = np.zeros(values.shape, dtype=np.bool_)
    # Differences of sums are not exact: a mean at the limit may come out a little below 1.
    beyond[:, width - 1 :] = (sums[:, width:] - sums[:, :-width]) / width >= 1.0 - 1e-9
    return beyond


def first_breach(beyond: Bools, since: int) -> Ints:
    """The first true interval of each row from `since` on; `NEVER` where there is none."""
    later = beyond[:, since:]
    found: Ints = np.where(later.any(axis=1), np.argmax(later, axis=1) + since, NEVER).astype(np.int64)
    return found
