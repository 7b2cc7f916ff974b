"""Everything that is saved of a series: its rings and its columns, by row. `Engine` declares the columns."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kernelcast.predictor.arrays import Ints
from kernelcast.predictor.series.histories import Histories
from kernelcast.predictor.series.rings import RingArray
from kernelcast.predictor.series.saved.parts import Array
from kernelcast.predictor.series.windows import Windows


class SpanValues(Protocol):
    """Values of numbered spans of event time by row: a window or a ring.

    Attributes:
        newest: Number of the newest span of each row.
    """

    newest: Ints

    @property
    def length(self) -> int:
        """Spans kept per row."""
        ...

    def read(self, rows: Ints, last: Ints, count: int) -> RingArray:
        """The values of consecutive spans."""
        ...

    def fill(self, rows: Ints, newest: Ints, values: RingArray) -> None:
        """Replace the content of rows."""
        ...

    def extend(self, rows: Ints, newest: Ints, values: RingArray) -> None:
        """Add spans; the newest one is overwritten."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class RowColumn:
    """A value of each series that is saved with it and restored; both functions are called under the lock.

    Attributes:
        name: Unique; a saved column of an unknown name is ignored.
        save: Takes rows, shape (n,); returns an array of shape (n, ...) of any fixed type.
        restore: Takes rows and such an array; a row without a saved value is left as it is.
        in_increments: Whether it is saved at each snapshot in which it has changed; else only with its whole page,
            about every two hours: for state that changes with every sample and can be learnt again.
    """

    name: str
    save: Callable[[Ints], Array]
    restore: Callable[[Ints, Array], None]
    in_increments: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class StateTable:
    """A small array that belongs to no series, such as counts of outcomes; both functions are called under the lock.

    Attributes:
        name: Unique.
        save: Returns it.
        restore: Takes a saved one; called for each partition that has one.
    """

    name: str
    save: Callable[[], Array]
    restore: Callable[[Array], None]


class SavedRows:
    """Reads and restores the rows of one `Windows`, under its lock.

    Attributes:
        windows: The series.
        lock: Protects them.
        spans: Windows and histories by name.
        columns: Further columns by name.
        tables: Arrays that belong to no series, by name.
    """

    def __init__(
        self,
        windows: Windows,
        lock: threading.RLock,
        *,
        histories: Histories | None = None,
        columns: Sequence[RowColumn] = (),
    ) -> None:
        self.windows = windows
        self.lock = lock
        self._histories = histories
        self.spans: dict[str, SpanValues] = {"windows": windows}
        self.columns: dict[str, RowColumn] = {}
        self.tables: dict[str, StateTable] = {}
        self._rewritten: set[int] = set()
        self.add(RowColumn("last_ns", self._last_ns, self._restore_last_ns))
        if histories is not None:
            self.spans |= histories.spans
            for name, (save, restore) in histories.columns.items():
                self.add(RowColumn(name, save, restore))
        for column in columns:
            self.add(column)

    @property
    def block_intervals(self) -> int:
        """Intervals in a block of the histories; 0 without any."""
        return self._histories.block_intervals if self._histories is not None else 0

    @property
    def row_bytes(self) -> int:
        """Size of one series' spans."""
        return 4 * sum(spans.length for spans in self.spans.values())

    def add(self, column: RowColumn) -> None:
        """Save another column from now on."""
        self.columns[column.name] = column

    def rewrite(self, rows: Ints) -> None:
        """Save rows whole with the next snapshot: their past has changed."""
        with self.lock:
            self._rewritten.update(rows.tolist())

    def take_rewritten(self, rows: Ints) -> Ints:
        """The rows among these that must be saved whole; called under the lock."""
        known = self._rewritten
        rewritten = np.array([row for row in rows.tolist() if row in known] if known else [], np.int64)
        self._rewritten.difference_update(rewritten.tolist())
        return rewritten

    def prepare(self, rows: Ints) -> None:
        """Make room for rows that were just admitted."""
        if self._histories is not None:
            self._histories.prepare(rows)

    def _last_ns(self, rows: Ints) -> Array:
        return self.windows.last_ns[rows]

    def _restore_last_ns(self, rows: Ints, values: Array) -> None:
        self.windows.last_ns[rows] = np.maximum(values, self.windows.last_ns[rows])
