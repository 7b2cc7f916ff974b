"""Converts cumulative totals to one value per interval: the increase since the last point of the interval before.

`Windows.put_totals` calls it for each batch of counters and histograms.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Floats, Ints

_FLOATS: Final = ("base_numerator", "base_denominator", "numerator", "denominator", "first_numerator")
_NOWHERE: Final = np.iinfo(np.int64).min // 4


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals of some rows at one moment each; arrays of shape (n,).

    Attributes:
        interval: The interval they fall into.
        start_ns: When they began to count.
        numerator: The first total.
        denominator: The second total.
        zero: The denominator when counting began.
    """

    interval: Ints
    start_ns: Ints
    numerator: Floats
    denominator: Floats
    zero: Floats


class RunningTotals:
    """Last totals of every row, and those at the begin of its current interval; arrays of one length, by row.

    Not safe for several threads: the caller holds the windows' lock.

    Attributes:
        numerator, denominator: The last totals seen, NaN before the first.
        base_numerator, base_denominator: The totals at the end of the interval before, NaN where unknown.
        first_numerator: The numerator when the row was first seen; moves with resets, so increases add up.
        start_ns: When the totals began to count.
        interval: The interval of the last totals.
    """

    def __init__(self, capacity: int) -> None:
        self.base_numerator: Floats = np.full(capacity, np.nan)
        self.base_denominator: Floats = np.full(capacity, np.nan)
        self.numerator: Floats = np.full(capacity, np.nan)
        self.denominator: Floats = np.full(capacity, np.nan)
        self.first_numerator: Floats = np.full(capacity, np.nan)
        self.start_ns: Ints = np.zeros(capacity, np.int64)
        self.interval: Ints = np.full(capacity, _NOWHERE, np.int64)

    def advance(self, rows: Ints, now: Totals, *, last_ns: Ints) -> Floats:
        """Record newer totals.

        Args:
            rows: Shape (n,), each at most once.
            now: Their totals, in the same order.
            last_ns: Shape (n,), when the row's last totals were measured.

        Returns:
            Shape (n,): the value of the interval so far; NaN where nothing is known or nothing happened.
        """
        known = np.isfinite(self.numerator[rows])
        reset = known & (
            (now.start_ns != self.start_ns[rows])
            | (now.numerator < self.numerator[rows])
            | (now.denominator < self.denominator[rows])
        )
        counted = self.numerator[rows] - self.first_numerator[rows]
        self._move_bases(rows, now, reset)
        # After a true restart everything counted so far is new; otherwise what came before the reset is unknown.
        restarted = reset & (now.start_ns >= last_ns) & (now.start_ns > 0)
        self.base_numerator[rows[restarted]] = 0.0
        self.base_denominator[rows[restarted]] = now.zero[restarted]
        first = np.where(known, self.first_numerator[rows], now.numerator)
        self.first_numerator[rows] = np.where(reset, -counted, first)
        self.start_ns[rows] = now.start_ns
        self.interval[rows] = now.interval
        increase = now.numerator - self.base_numerator[rows]
        over = now.denominator - self.base_denominator[rows]
        values: Floats = np.divide(increase, over, out=np.full(len(rows), np.nan), where=over > 0)
        return values

    def _move_bases(self, rows: Ints, now: Totals, reset: NDArray[np.bool_]) -> None:
        moved = now.interval != self.interval[rows]
        for total, last, base in (
            (now.numerator, self.numerator, self.base_numerator),
            (now.denominator, self.denominator, self.base_denominator),
        ):
            before = np.where(moved, last[rows], base[rows])
            base[rows] = np.where(reset, np.nan, before)
            last[rows] = total

    def clear(self, rows: Ints) -> None:
        """Clear the totals of rows."""
        for name in _FLOATS:
            getattr(self, name)[rows] = np.nan
        self.start_ns[rows] = 0
        self.interval[rows] = _NOWHERE

    def grow(self, capacity: int) -> None:
        """Extend the arrays to this number of rows."""
        more = capacity - len(self.start_ns)
        for name in _FLOATS:
            setattr(self, name, np.concatenate([getattr(self, name), np.full(more, np.nan)]))
        self.start_ns = np.concatenate([self.start_ns, np.zeros(more, np.int64)])
        self.interval = np.concatenate([self.interval, np.full(more, _NOWHERE, np.int64)])
