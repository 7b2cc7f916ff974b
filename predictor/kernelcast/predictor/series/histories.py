"""Coarser resolutions of the windows' series: blocks of five minutes for two days, hours for five weeks.

`Cycle.run` advances it; the stages of a cycle read blocks and hours. A block is condensed from its intervals once
the row's own event time has passed its end, an hour from its blocks. Per block one value is kept: the mean of gauges
that round, the median of all others; of the last two hours both are kept.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.series.changes import ChangePoints
from kernelcast.predictor.series.condensed import condense
from kernelcast.predictor.series.rings import EMPTY, RingArray, ValueRing
from kernelcast.predictor.series.windows import Windows
from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND
from kernelcast.wire.catalogue.meanings import MEANINGS, OTHER

Column: TypeAlias = NDArray[Any]

BLOCK_SECONDS: Final = 300.0
"""Length of a block, unless a backtest scales it: the unit in which the alarms' models see a series."""
HOUR_SECONDS: Final = 3600.0
"""Length of an hour of the long history, which scales as the block does."""
KEPT_BLOCKS: Final = 576
"""Two days."""
KEPT_HOURS: Final = 840
"""Five weeks."""
BOTH_BLOCKS: Final = 24
"""Newest blocks of which both mean and median are kept."""

CHUNK_ROWS: Final = 2048
"""Rows per holding of the lock: some milliseconds each."""
_CURRENT_BLOCKS: Final = 2
"""Blocks behind the median within which a row is current."""
_BEHIND_SHARE: Final = 0.1
"""Share of the current rows that may lack the newest block."""


class Histories:
    """Blocks and hours of the rows of one `Windows`; safe for several threads.

    The caller advances it at least once in the span of a window, else blocks are lost. A row that the windows gave to
    another series begins empty.

    Attributes:
        block_intervals: Intervals in a block, at least one.
        hour_blocks: Blocks in an hour, at least one.
        block_ns: Length of a block.
        excused: Whether a calendar excuses spans of time of rows, given their begins and their length: blocks and hours
            that overlap such a period are read as missing. None where no span is excused.
    """

    def __init__(self, windows: Windows, lock: threading.RLock, *, block_seconds: float = BLOCK_SECONDS) -> None:
        """Begin without rows.

        Args:
            windows: The series.
            lock: Protects the windows; held for `CHUNK_ROWS` rows at a time.
            block_seconds: Length of a block; hours are scaled with it.
        """
        self._windows = windows
        self._lock = lock
        interval_seconds = windows.interval_ns / NANOSECONDS_PER_SECOND
        self.block_intervals = max(round(block_seconds / interval_seconds), 1)
        self.block_ns = self.block_intervals * windows.interval_ns
        self.hour_blocks = max(
            round(HOUR_SECONDS * NANOSECONDS_PER_SECOND * (block_seconds / BLOCK_SECONDS) / self.block_ns), 1
        )
        self.excused: Callable[[Ints, Ints, int], Bools | None] = lambda _rows, _begin_ns, _length_ns: None
        self._window_blocks = -(-windows.points // self.block_intervals)
        self._blocks = ValueRing(KEPT_BLOCKS)
        self._others = ValueRing(BOTH_BLOCKS)
        self._hours = ValueRing(KEPT_HOURS)
        self._processes = ChangePoints(0)
        self._generation: Ints = np.zeros(0, np.int64)
        self._start_ns: Ints = np.zeros(0, np.int64)
        self._averaged: Bools = np.zeros(0, np.bool_)

    @property
    def nbytes(self) -> int:
        """Memory of the values."""
        return self._blocks.nbytes + self._others.nbytes + self._hours.nbytes

    @property
    def spans(self) -> dict[str, ValueRing]:
        """The rings by the names under which they are saved."""
        return {"blocks": self._blocks, "others": self._others, "hours": self._hours}

    @property
    def columns(self) -> dict[str, tuple[Callable[[Ints], Column], Callable[[Ints, Column], None]]]:
        """Further numbers of each row, by the names under which they are saved: how to read and how to restore them."""
        return {
            "processes": (self._processes.save, self._processes.restore),
            "start_ns": (lambda rows: self._start_ns[rows], self._restore_start),
        }

    def prepare(self, rows: Ints) -> None:
        """Make room for rows whose content is restored; called under the lock."""
        self._replace_reused(rows)

    def advance(self, rows: Ints) -> int:
        """Condense the intervals that have ended since the last call; returns the number of rows with new blocks."""
        return sum(self._advance(part) for part in self._chunks(rows))

    def newest_block(self, rows: Ints) -> int:
        """The newest block that nearly all current rows have; EMPTY where no row has one.

        Rows that ended long ago do not move it.
        """
        with self._lock:
            self._grow(rows)
            newest = np.sort(self._blocks.newest[rows])
        newest = newest[newest != EMPTY]
        if not len(newest):
            return EMPTY
        current = newest[newest >= newest[len(newest) // 2] - _CURRENT_BLOCKS]
        return int(current[int(_BEHIND_SHARE * (len(current) - 1))])

    def blocks(self, rows: Ints, newest: int | None = None) -> tuple[Floats, Floats]:
        """Means and medians of blocks.

        Args:
            rows: Shape (n,).
            newest: Number of the last block, the same for all rows; None for `newest_block(rows)`.

        Returns:
            Two arrays of shape (n, KEPT_BLOCKS), oldest first; NaN where missing. Before the last two hours of a row
            both have the value that is kept.
        """
        last = self.newest_block(rows) if newest is None else newest
        mean, median = np.empty((2, len(rows), KEPT_BLOCKS))
        begin = 0
        for part in self._chunks(rows):
            here = slice(begin, begin + len(part))
            with self._lock:
                kept, other = self._read(part, last)
                averaged = self._averaged[part][:, None]
            mean[here] = np.where(averaged, kept, other)
            median[here] = np.where(averaged, other, kept)
            begin += len(part)
        self._excuse(rows, last, self.block_ns, mean, median)
        return mean, median

    def known_blocks(self, rows: Ints) -> Ints:
        """Number of the newest KEPT_BLOCKS blocks of each row that have a value."""
        counts = [np.zeros(0, np.int64)]
        for part in self._chunks(rows):
            with self._lock:
                values = self._blocks.read(part, self._blocks.newest[part], KEPT_BLOCKS)
                reused = self._generation[part] != self._windows.generation[part]
            counts.append(np.where(reused, 0, np.isfinite(values).sum(axis=1)))
        return np.concatenate(counts)

    def hours(self, rows: Ints, newest: int | None = None) -> Floats:
        """Means or medians of hours, as they are kept.

        Args:
            rows: Shape (n,).
            newest: Number of the last block; None for `newest_block(rows)`. The last column is the last whole hour.

        Returns:
            Shape (n, KEPT_HOURS), oldest first; NaN where missing.
        """
        last = self.newest_block(rows) if newest is None else newest
        hours = np.empty((len(rows), KEPT_HOURS))
        begin = 0
        for part in self._chunks(rows):
            ends = self._ended_hour(np.full(len(part), last))
            with self._lock:
                hours[begin : begin + len(part)] = self._hours.read(part, ends, KEPT_HOURS)
            begin += len(part)
        self._excuse(rows, int(self._ended_hour(np.array([last]))[0]), self.hour_blocks * self.block_ns, hours)
        return hours

    def _excuse(self, rows: Ints, last: int, length_ns: int, *values: Floats) -> None:
        """Remove the columns up to number `last`, of spans of a length, that the calendar excuses."""
        begin_ns = (last + 1 - np.arange(values[0].shape[1], 0, -1)) * length_ns
        excused = self.excused(rows, begin_ns, length_ns) if last != EMPTY else None
        for each in values if excused is not None else ():
            each[excused] = np.nan

    def processes(self, rows: Ints, newest: int) -> Ints:
        """Number of replacements of each row's process up to the end of each block, shape (n, KEPT_BLOCKS)."""
        with self._lock:
            self._grow(rows)
            return self._processes.expand(rows, newest, KEPT_BLOCKS)

    def latest_processes(self, rows: Ints) -> Ints:
        """Number of times that the process of each row has been replaced, shape (n,)."""
        with self._lock:
            self._grow(rows)
            return self._processes.latest(rows)

    def clear(self, rows: Ints) -> None:
        """Empty rows."""
        for part in self._chunks(rows):
            with self._lock:
                self._clear(part)

    def _advance(self, rows: Ints) -> int:
        with self._lock:
            self._replace_reused(rows)
            rows = rows[self._windows.newest[rows] != EMPTY]
            # The last block that ended before the newest interval, by the row's own time.
            ended = self._windows.newest[rows] // self.block_intervals - 1
            self._count_processes(rows)
            steps = np.minimum(ended - self._blocks.newest[rows], self._window_blocks)
            for chosen, count in _by_steps(steps):
                self._condense(rows[chosen], ended[chosen], count)
            return int((steps > 0).sum())

    def _condense(self, rows: Ints, ended: Ints, count: int) -> None:
        """Add the last `count` blocks, and the hours that end in them."""
        width, averaged = self.block_intervals, self._averaged[rows][:, None]
        intervals = self._windows.read(rows, (ended + 1) * width - 1, count * width)
        mean, median = condense(intervals, width)
        other = np.where(averaged, median, mean).astype(np.float32)
        self._blocks.append(rows, ended, np.where(averaged, mean, median).astype(np.float32))
        self._others.append(rows, ended, other[:, -BOTH_BLOCKS:])
        hour = self._ended_hour(ended)
        # A row without hours has no blocks before these.
        most = np.where(
            self._hours.newest[rows] == EMPTY, count // self.hour_blocks + 1, KEPT_BLOCKS // self.hour_blocks
        )
        steps = np.minimum(hour - self._hours.newest[rows], most)
        for chosen, hours in _by_steps(steps):
            self._condense_hours(rows[chosen], hour[chosen], hours)

    def _condense_hours(self, rows: Ints, ended: Ints, count: int) -> None:
        width = self.hour_blocks
        blocks = self._blocks.read(rows, (ended + 1) * width - 1, count * width)
        mean, median = condense(blocks, width)
        self._hours.append(rows, ended, np.where(self._averaged[rows][:, None], mean, median).astype(np.float32))

    def _count_processes(self, rows: Ints) -> None:
        start_ns = self._windows.totals.start_ns[rows]
        before_ns = self._start_ns[rows]
        changed = np.flatnonzero((start_ns != before_ns) & (start_ns != 0))
        if not len(changed):
            return
        rows, start_ns, known = rows[changed], start_ns[changed], before_ns[changed] != 0
        self._start_ns[rows] = start_ns
        replaced, began = rows[known], start_ns[known] // self.block_ns
        present = self._windows.newest[replaced] // self.block_intervals
        since = np.clip(began, self._blocks.newest[replaced] + 1, present)
        self._processes.put(replaced, since, self._processes.latest(replaced) + 1)

    def _read(self, rows: Ints, newest: int) -> tuple[RingArray, RingArray]:
        """The kept values and the other of mean and median; the kept ones again where the other is missing."""
        last = np.full(len(rows), newest)
        kept, other = self._blocks.read(rows, last, KEPT_BLOCKS), self._others.read(rows, last, KEPT_BLOCKS)
        return kept, np.where(np.isnan(other), kept, other)

    def _ended_hour(self, block: Ints) -> Ints:
        return (block + 1) // self.hour_blocks - 1

    def _replace_reused(self, rows: Ints) -> None:
        """Empty the rows that the windows have given to another series."""
        self._grow(rows)
        reused = rows[self._generation[rows] != self._windows.generation[rows]]
        if not len(reused):
            return
        self._clear(reused)
        self._generation[reused] = self._windows.generation[reused]
        subjects = [self._windows.subject(row) for row in reused.tolist()]
        self._averaged[reused] = [
            subject is not None and MEANINGS.get(subject.metric, OTHER).resolution > 0 for subject in subjects
        ]

    def _clear(self, rows: Ints) -> None:
        for part in (self._blocks, self._others, self._hours, self._processes):
            part.clear(rows)
        self._start_ns[rows] = 0

    def _restore_start(self, rows: Ints, values: Column) -> None:
        self._start_ns[rows] = values

    def _chunks(self, rows: Ints) -> list[Ints]:
        with self._lock:
            self._grow(rows)
        return _split(rows)

    def _grow(self, rows: Ints) -> None:
        before, size = len(self._generation), int(rows.max(initial=-1)) + 1
        if size <= before:
            return
        capacity = max(size, min(2 * before, before + CHUNK_ROWS))
        for part in (self._blocks, self._others, self._hours, self._processes):
            part.grow(capacity)
        more = np.zeros(capacity - before, np.int64)
        self._generation = np.concatenate([self._generation, more])
        self._start_ns = np.concatenate([self._start_ns, more])
        self._averaged = np.concatenate([self._averaged, more.astype(np.bool_)])


def _by_steps(steps: Ints) -> Iterator[tuple[Ints, int]]:
    """Places of the rows with one step, then of those with more, and the largest number of steps among them."""
    for chosen in (np.flatnonzero(steps == 1), np.flatnonzero(steps > 1)):
        if len(chosen):
            yield chosen, int(steps[chosen].max())


def _split(values: Ints) -> list[Ints]:
    return [values[begin : begin + CHUNK_ROWS] for begin in range(0, len(values), CHUNK_ROWS)]
