"""Ring buffers over numbered spans of event time: one value per series and span, NaN where nothing is known.

A span is a block (five minutes by default) or an hour, numbered from the epoch. A row is a series.
`Histories` holds three rings, and saves and restores them.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Ints

RingArray = NDArray[np.float32]

EMPTY: Final = np.iinfo(np.int64).min // 4
"""The newest span of a row without a value: below every number, and differences do not overflow."""


class ValueRing:
    """The last `length` values of each row; each row has its own newest span. Not safe for several threads.

    Attributes:
        length: Spans kept per row.
        newest: Shape (capacity,), number of the newest span; EMPTY where there is none.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.newest: Ints = np.zeros(0, np.int64)
        self._values: RingArray = np.zeros((0, length), np.float32)

    @property
    def nbytes(self) -> int:
        """Memory of the values, bytes."""
        return self._values.nbytes

    def grow(self, capacity: int) -> None:
        """Extend to this number of rows; new rows are empty."""
        before = len(self.newest)
        if capacity <= before:
            return
        # In place, so no view of `_values` may be kept: a copy would need the memory twice, and time.
        self._values.resize((capacity, self.length), refcheck=False)
        self._values[before:] = np.nan
        self.newest = np.concatenate([self.newest, np.full(capacity - before, EMPTY, np.int64)])

    def clear(self, rows: Ints) -> None:
        """Remove all values of some rows."""
        self._values[rows] = np.nan
        self.newest[rows] = EMPTY

    def read(self, rows: Ints, last: Ints, count: int) -> RingArray:
        """A copy of the values of consecutive spans.

        Args:
            rows: Shape (n,).
            last: Shape (n,), number of the last span to read.
            count: Spans to read.

        Returns:
            Shape (n, count), oldest first; NaN for spans that the row does not hold.
        """
        shown = min(count, self.length)
        numbers = last[:, None] + np.arange(1 - shown, 1)
        values = np.take_along_axis(self._values[rows], numbers % self.length, axis=1)
        newest = self.newest[rows][:, None]
        values[(numbers > newest) | (numbers <= newest - self.length)] = np.nan
        if shown == count:
            return values
        return np.concatenate([np.full((len(rows), count - shown), np.nan, np.float32), values], axis=1)

    def fill(self, rows: Ints, newest: Ints, values: RingArray) -> None:
        """Replace the content of rows; `values` has shape (n, length), its last column is the span `newest`."""
        numbers = newest[:, None] + np.arange(1 - self.length, 1)
        self._values[rows[:, None], numbers % self.length] = values
        self.newest[rows] = newest

    def extend(self, rows: Ints, newest: Ints, values: RingArray) -> None:
        """Add consecutive spans, as `append` does."""
        self.append(rows, newest, values)

    def append(self, rows: Ints, last: Ints, values: RingArray) -> None:
        """Add consecutive spans; those not newer than the row's newest are ignored, skipped ones become NaN.

        Args:
            rows: Shape (n,), each at most once.
            last: Shape (n,), number of the span of the last column.
            values: Shape (n, count), oldest first; count is at most `length`.
        """
        numbers = last[:, None] + np.arange(1 - values.shape[1], 1)
        newest = self.newest[rows]
        self._skip(rows, np.where(newest == EMPTY, 0, numbers[:, 0] - newest - 1))
        at, column = np.nonzero(numbers > newest[:, None])
        self._values[rows[at], numbers[at, column] % self.length] = values[at, column]
        self.newest[rows] = np.maximum(newest, last)

    def _skip(self, rows: Ints, count: Ints) -> None:
        self._blank(rows, self.newest[rows] + 1, count)

    def _blank(self, rows: Ints, first: Ints, count: Ints) -> None:
        """Set `count` spans from `first` on to NaN."""
        some = np.flatnonzero(count > 0)
        if not len(some):
            return
        steps = np.arange(min(int(count[some].max()), self.length))
        at, step = np.nonzero(steps < count[some][:, None])
        self._values[rows[some][at], (first[some][at] + step) % self.length] = np.nan
