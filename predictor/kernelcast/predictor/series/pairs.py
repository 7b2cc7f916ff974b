"""Joins the two counters of a mean, sum and count, by their time; `WindowFeed` does so for variants of kernels."""

from collections.abc import Iterable, Iterator
from itertools import zip_longest

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints, extended
from kernelcast.predictor.series.points import Points

Joined = tuple[Ints, Ints, Ints, tuple[Floats, Floats]]
"""Rows, times and starts in Unix nanoseconds, and (sums, counts); each of shape (n,)."""


class Pairs:
    """Keeps the counter that came first until the other one comes. The caller holds the windows' lock.

    Totals are cumulative, so that a lost counter costs the value of one interval.
    """

    def __init__(self) -> None:
        self._sum: Floats = np.zeros(0)
        self._sum_ns: Ints = np.zeros(0, np.int64)
        self._count: Floats = np.zeros(0)
        self._count_ns: Ints = np.zeros(0, np.int64)
        self._start_ns: Ints = np.zeros(0, np.int64)

    def join(self, sums: Iterable[Points], counts: Iterable[Points]) -> Iterator[Joined]:
        """Rows whose halves agree on the time: rows, times, starts, (sums, counts)."""
        for total, count in zip_longest(sums, counts):
            touched = []
            if total is not None:
                self._grow(int(total.rows.max()) + 1)
                self._sum[total.rows], self._sum_ns[total.rows] = total.value, total.time_ns
                self._start_ns[total.rows] = total.start_ns
                touched.append(total.rows)
            if count is not None:
                self._grow(int(count.rows.max()) + 1)
                self._count[count.rows], self._count_ns[count.rows] = count.value, count.time_ns
                touched.append(count.rows)
            rows = np.unique(np.concatenate(touched))
            rows = rows[self._sum_ns[rows] == self._count_ns[rows]]
            yield rows, self._sum_ns[rows], self._start_ns[rows], (self._sum[rows], self._count[rows])

    def drop(self, rows: Ints) -> None:
        """Drop the counters of rows that wait for the other one."""
        known = rows[rows < len(self._sum_ns)]
        self._sum_ns[known] = 0
        self._count_ns[known] = -1

    def _grow(self, size: int) -> None:
        self._sum, self._count = extended(self._sum, size, 0), extended(self._count, size, 0)
        self._sum_ns, self._count_ns = extended(self._sum_ns, size, 0), extended(self._count_ns, size, -1)
        self._start_ns = extended(self._start_ns, size, 0)
