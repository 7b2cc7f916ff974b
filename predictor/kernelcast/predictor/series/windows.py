"""The recent past of every series: ring buffers on a grid of event time, NaN where nothing is known.

`WindowFeed` writes points as Kafka delivers them; a cycle reads. Intervals are numbered from the epoch. Each series
has its own newest interval, so that neither a host with a wrong clock nor a replay moves the windows of others. A
point that is not newer than the last one is ignored: reading a message twice changes nothing.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.series.subjects import Subject
from kernelcast.predictor.series.totals import RunningTotals, Totals
from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND

WindowArray = NDArray[np.float32]

NOT_ADMITTED: Final = -1
EMPTY: Final = np.iinfo(np.int64).min // 4
"""The newest interval of a series that has no value yet."""

LARGEST: Final = float(np.finfo(np.float32).max)
"""Largest value of a window; larger and infinite values count as missing."""

_FIRST_CAPACITY: Final = 1024
"""Rows at first; the arrays double when they are full."""


class Windows:
    """Windows of up to `max_series` series. Not safe for several threads: the caller holds the engine's lock.

    A series has a *row*, its index in all arrays; a dropped row is used again for another series. One that is set aside
    goes on in its row when it returns, unless the row was needed meanwhile.

    Attributes:
        interval_ns: Length of an interval.
        points: Intervals per window.
        refused: Number of series that were not admitted because the limit was reached.
        newest: Shape (capacity,), number of the newest interval; EMPTY without a value.
        last_ns: Shape (capacity,), time of the last point, Unix nanoseconds.
        touched: Shape (capacity,), time of the last write by this process's clock, seconds.
        owner: Shape (capacity,), number of the partition; -1 for a free row.
        generation: Shape (capacity,), count of series that the row has had, so that others notice a new one.
        totals: Running totals of counters and histograms.
    """

    def __init__(self, *, interval_ns: int, points: int, max_series: int) -> None:
        self.interval_ns = interval_ns
        self.points = points
        self.refused = 0
        self._max_series = max_series
        self._rows: dict[Subject, int] = {}
        self._subjects: list[Subject | None] = []
        self._free: list[int] = []
        self._aside: dict[Subject, int] = {}  # the one that was set aside first comes first
        capacity = min(_FIRST_CAPACITY, max_series)
        self._ring: WindowArray = np.full((capacity, points), np.nan, np.float32)
        self.newest: Ints = np.full(capacity, EMPTY, np.int64)
        self.last_ns: Ints = np.zeros(capacity, np.int64)
        self.touched: Floats = np.zeros(capacity)
        self.owner: Ints = np.full(capacity, -1, np.int64)
        self.generation: Ints = np.zeros(capacity, np.int64)
        self.totals = RunningTotals(capacity)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def length(self) -> int:
        """Intervals per window."""
        return self.points

    def admit(self, subject: Subject, *, owner: int) -> int:
        """The row of a series, made where it has none; NOT_ADMITTED where the limit is reached.

        Args:
            subject: The series.
            owner: Number of the partition that it comes from; its rows leave together.
        """
        row = self._rows.get(subject)
        if row is not None:
            self.owner[row] = owner
            return row
        row = self._aside.pop(subject, None)
        if row is None:
            row = self._unused_row()
            if row == NOT_ADMITTED:
                self.refused += 1
                return NOT_ADMITTED
            self._begin_again(np.array([row]))
        self._rows[subject] = row
        self._subjects[row] = subject
        self.owner[row] = owner
        return row

    def rename(self, before: Subject, after: Subject) -> int | None:
        """Let a series go on under other labels; returns its row, None if there is no such series or both exist."""
        if before not in self._rows or after in self._rows:
            return None
        if after in self._aside:
            self._free.append(self._aside.pop(after))
        row = self._rows[after] = self._rows.pop(before)
        self._subjects[row] = after
        return row

    def row(self, subject: Subject) -> int | None:
        """The row of a series, if it has one."""
        return self._rows.get(subject)

    def subject(self, row: int) -> Subject | None:
        """The series in a row, if there is one."""
        return self._subjects[row]

    def items(self) -> Iterator[tuple[Subject, int]]:
        """All series with their rows."""
        return iter(self._rows.items())

    def rows(self) -> Ints:
        """The rows in use, ascending."""
        return np.sort(np.fromiter(self._rows.values(), np.int64, len(self._rows)))

    def put_levels(self, rows: Ints, time_ns: Ints, values: Floats, *, now_seconds: float) -> Ints:
        """Write gauges.

        Args:
            rows: Shape (n,), each at most once.
            time_ns: Shape (n,), when each was measured.
            values: Shape (n,).
            now_seconds: This process's clock, for expiry.

        Returns:
            The rows that took a value.
        """
        taken = self._newer(rows, time_ns, now_seconds)
        self._write(rows[taken], time_ns[taken], values[taken])
        return rows[taken]

    def put_totals(
        self,
        rows: Ints,
        time_ns: Ints,
        start_ns: Ints,
        totals: tuple[Floats, Floats | None],
        *,
        now_seconds: float,
        measured_share: Floats | None = None,
    ) -> Ints:
        """Write cumulative totals; the window gets the increase of the first over that of the second.

        Args:
            rows: Shape (n,), each at most once.
            time_ns: Shape (n,), when each was measured.
            start_ns: Shape (n,), when its totals began to count; another start is a reset.
            totals: Numerators and denominators, each of shape (n,); None as denominators makes rates per second.
            now_seconds: This process's clock, for expiry.
            measured_share: Shape (n,), share of time in which the totals were counted; None for all of it.

        Returns:
            The rows that took a value.
        """
        taken = self._newer(rows, time_ns, now_seconds)
        rows, time_ns = rows[taken], time_ns[taken]
        bins = time_ns // self.interval_ns
        over = totals[1]
        now = Totals(
            bins,
            start_ns[taken],
            totals[0][taken],
            time_ns / NANOSECONDS_PER_SECOND if over is None else over[taken],
            start_ns[taken] / NANOSECONDS_PER_SECOND if over is None else np.zeros(len(rows)),
        )
        values = self.totals.advance(rows, now, last_ns=self.last_ns[rows])
        if measured_share is not None:
            values /= measured_share[taken]
        self._write(rows, time_ns, values)
        return rows

    def matrix(self, rows: Ints, *, since: Ints | None = None) -> WindowArray:
        """Windows as a matrix.

        Args:
            rows: Shape (n,).
            since: Shape (n,): values of earlier intervals read as NaN.

        Returns:
            Shape (n, points), each row up to its own newest interval, oldest first.
        """
        bins = self.newest[rows][:, None] + np.arange(1 - self.points, 1)
        values = np.take_along_axis(self._ring[rows], bins % self.points, axis=1)
        if since is not None:
            values[bins < since[:, None]] = np.nan
        return values

    def read(self, rows: Ints, last: Ints, count: int) -> WindowArray:
        """The values of consecutive intervals.

        Args:
            rows: Shape (n,).
            last: Shape (n,), number of the last interval to read.
            count: Intervals to read.

        Returns:
            Shape (n, count), oldest first; NaN for intervals that are not in the window.
        """
        bins = last[:, None] + np.arange(1 - count, 1)
        values: WindowArray = self._ring[rows[:, None], bins % self.points]
        newest = self.newest[rows][:, None]
        values[(bins > newest) | (bins <= newest - self.points)] = np.nan
        return values

    def at(self, row: int, number: int) -> float:
        """The value of one interval; NaN where it is unknown or out of the window."""
        newest = int(self.newest[row])
        if not newest - self.points < number <= newest:
            return float("nan")
        return float(self._ring[row, number % self.points])

    def latest(self, rows: Ints) -> Floats:
        """The values of the newest intervals, shape (n,); NaN where they are unknown."""
        return self._ring[rows, self.newest[rows] % self.points].astype(np.float64)

    def expired(self, before_seconds: float) -> Ints:
        """Rows without a newer point since then."""
        rows = self.rows()
        return rows[self.touched[rows] < before_seconds]

    def owned_by(self, owners: Sequence[int]) -> Ints:
        """Rows that came from these partitions."""
        rows = self.rows()
        return rows[np.isin(self.owner[rows], list(owners))]

    def drop(self, rows: Ints) -> None:
        """Forget series; their rows will be used again."""
        for row in rows.tolist():
            subject = self._subjects[row]
            if subject is not None:
                del self._rows[subject]
                self._subjects[row] = None
                self._free.append(row)
        self.owner[rows] = -1

    def set_aside(self, rows: Ints) -> None:
        """Drop series that may return."""
        for row in rows.tolist():
            subject = self._subjects[row]
            if subject is not None:
                self._aside[subject] = self._rows.pop(subject)
                self._subjects[row] = None
        self.owner[rows] = -1

    def forget_aside(self) -> None:
        """Let no series return into its row: another reader goes on with it."""
        self._free.extend(self._aside.values())
        self._aside.clear()

    def fill(self, rows: Ints, newest: Ints, values: WindowArray) -> None:
        """Replace whole windows.

        Args:
            rows: Shape (n,), each at most once.
            newest: Shape (n,), number of the interval of the last column.
            values: Shape (n, points), oldest first.
        """
        bins = newest[:, None] + np.arange(1 - self.points, 1)
        self._ring[rows[:, None], bins % self.points] = values
        self.newest[rows] = newest

    def extend(self, rows: Ints, newest: Ints, values: WindowArray) -> None:
        """Add intervals to windows; the newest one of a window is overwritten, earlier ones stay.

        Args:
            rows: Shape (n,), each at most once.
            newest: Shape (n,), number of the interval of the last column.
            values: Shape (n, count), oldest first.
        """
        bins = newest[:, None] + np.arange(1 - values.shape[1], 1)
        before = self.newest[rows]
        gap = np.where(before == EMPTY, 0, np.minimum(bins[:, 0] - before - 1, self.points))
        for step in range(int(gap.max(initial=0))):
            skipped = gap > step
            self._ring[rows[skipped], (before[skipped] + 1 + step) % self.points] = np.nan
        at, column = np.nonzero(bins >= before[:, None])
        self._ring[rows[at], bins[at, column] % self.points] = values[at, column]
        self.newest[rows] = np.maximum(before, newest)

    def _newer(self, rows: Ints, time_ns: Ints, now_seconds: float) -> NDArray[np.bool_]:
        span_ns = self.points * self.interval_ns
        turned_back = (time_ns > 0) & (time_ns < self.last_ns[rows] - span_ns)
        if turned_back.any():
            # Clocks were set right, that of this machine among them: what was written before is of another time.
            self._begin_again(rows[turned_back])
        newer: NDArray[np.bool_] = time_ns > self.last_ns[rows]
        self.touched[rows[newer]] = now_seconds
        return newer

    def _write(self, rows: Ints, time_ns: Ints, values: Floats) -> None:
        if not len(rows):
            return
        bins = time_ns // self.interval_ns
        newest = self.newest[rows]
        values = np.where(np.abs(values) <= LARGEST, values, np.nan)
        gap = np.where(newest == EMPTY, 1, np.minimum(bins - newest, self.points))
        for step in range(1, int(gap.max(initial=0))):
            skipped = gap > step
            self._ring[rows[skipped], (newest[skipped] + step) % self.points] = np.nan
        emptied = (gap == self.points) & (newest != EMPTY)
        self._ring[rows[emptied]] = np.nan
        self._ring[rows, bins % self.points] = values
        self.newest[rows] = bins
        self.last_ns[rows] = time_ns

    def _begin_again(self, rows: Ints) -> None:
        """Let rows begin as new series."""
        self.generation[rows] += 1
        self._ring[rows] = np.nan
        self.newest[rows] = EMPTY
        self.last_ns[rows] = 0
        self.totals.clear(rows)

    def _unused_row(self) -> int:
        """A row for a new series: without memory of another one while the arrays have such rows."""
        if self._free:
            return self._free.pop()
        if self._aside and len(self._subjects) >= len(self._ring):
            return self._aside.pop(next(iter(self._aside)))
        return self._append() if len(self._subjects) < self._max_series else NOT_ADMITTED

    def _append(self) -> int:
        row = len(self._subjects)
        self._subjects.append(None)
        if row >= len(self._ring):
            self._grow(min(2 * len(self._ring), self._max_series))
        return row

    def _grow(self, capacity: int) -> None:
        more = capacity - len(self._ring)
        self._ring = np.concatenate([self._ring, np.full((more, self.points), np.nan, np.float32)])
        self.newest = np.concatenate([self.newest, np.full(more, EMPTY, np.int64)])
        self.last_ns = np.concatenate([self.last_ns, np.zeros(more, np.int64)])
        self.touched = np.concatenate([self.touched, np.zeros(more)])
        self.owner = np.concatenate([self.owner, np.full(more, -1, np.int64)])
        self.generation = np.concatenate([self.generation, np.zeros(more, np.int64)])
        self.totals.grow(capacity)
