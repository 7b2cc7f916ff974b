"""The last 15 minutes of the series that the pages name: an array of one row for each series, one column per reading.

`LocalPages` lets a thread add a column every few seconds, and queries take windows from it. The bytes are bounded: rows
by a setting, columns by time, labels by their length. A series that is not on the page at a reading has no value there
(NaN), as Prometheus marks it stale.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from kernelcast.bridge.pages.layout import Layout, SnapshotSource, StoreSnapshot
from kernelcast.bridge.pages.view import SeriesView
from kernelcast.bridge.tables.columns import HAS_SUM, INTEGER, NOT_A_HISTOGRAM, FloatArray, Int64Array

SECONDS: Final = 900.0
"""Length of the ring: the longest range of the built-in screens."""
MAX_LABEL_BYTES: Final = 1024
"""Longest labels of a kept series, as rendered; kernels' names are cut to 300 characters at their source."""
_FIRST_ROWS: Final = 256
"""Rows that are allocated at first; they double when series need more."""

Labels = tuple[tuple[str, str], ...]


class RingSample(NamedTuple):
    """One sample name with its rendered labels."""

    name: str
    labels: bytes


@dataclass(slots=True)
class _RowMap:
    """Ring rows of the series of one layout of the store, so that a reading is three assignments of arrays.

    Attributes:
        layout: The layout it was made for.
        values: Positions of plain values in the layout, and their rows.
        sums: Positions of histograms, and the rows of their sums.
        counts: Positions of histograms, and the rows of their counts.
    """

    layout: Layout
    values: tuple[Int64Array, Int64Array]
    sums: tuple[Int64Array, Int64Array]
    counts: tuple[Int64Array, Int64Array]


@dataclass(frozen=True, slots=True)
class Window:
    """Values of all kept series of one name.

    Attributes:
        times: Shape (t,), seconds, oldest first.
        labels: Labels of each of n series.
        values: Shape (n, t), NaN where a series had no value.
    """

    times: FloatArray
    labels: tuple[Labels, ...]
    values: FloatArray


@dataclass(slots=True)
class SampleRing:
    """Keeps the values. One thread calls `read`, any thread takes windows; a lock separates them.

    Attributes:
        names: Families to keep.
        interval_seconds: Time between two readings.
        max_series: Largest number of rows.
        dropped_series: Series of the last reading without a row: the ring is full, or their labels are too long.
    """

    names: frozenset[str]
    interval_seconds: float
    max_series: int
    dropped_series: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _rows: dict[RingSample, int] = field(default_factory=dict)
    _labels: dict[int, Labels] = field(default_factory=dict)
    _free: list[int] = field(default_factory=list)
    _values: FloatArray = field(default_factory=lambda: np.empty((0, 0)))
    _times: list[float] = field(default_factory=list)
    _row_map: _RowMap | None = None

    def read(self, source: SnapshotSource, now_seconds: float) -> None:
        """Add a column with the store's present values."""
        snapshot = source.snapshot(SeriesView(names=self.names))
        with self._lock:
            self._drop_old_columns(now_seconds)
            if self._row_map is None or self._row_map.layout is not snapshot.layout:
                self._free_empty_rows()
                self._row_map = self._new_row_map(snapshot)
            self._times.append(now_seconds)
            column = self._values[:, len(self._times) - 1]
            values, row_map = snapshot.values, self._row_map
            plain = np.where(values.flags & INTEGER, values.integer, values.value)
            sums = np.where(values.flags & HAS_SUM, values.value, np.nan)
            for (positions, rows), given in (
                (row_map.values, plain),
                (row_map.sums, sums),
                (row_map.counts, values.integer),
            ):
                column[rows] = given[positions]

    def window(self, name: str) -> Window:
        """Return everything that is kept under a sample name."""
        with self._lock:
            chosen = [(row, self._labels[row]) for sample, row in self._rows.items() if sample.name == name]
            rows = np.array([row for row, _ in chosen], np.int64)
            times = np.array(self._times)
            values = self._values[rows, : len(times)].copy() if len(rows) else np.empty((0, len(times)))
        return Window(times, tuple(labels for _, labels in chosen), values)

    @property
    def columns(self) -> int:
        """Largest number of readings that are kept."""
        return int(SECONDS / self.interval_seconds) + 1

    @property
    def series(self) -> int:
        """Number of rows in use."""
        return len(self._rows)

    @property
    def bytes(self) -> int:
        """Bytes of the values and labels that are kept."""
        with self._lock:
            return self._values.nbytes + sum(2 * len(sample.labels) + len(sample.name) for sample in self._rows)

    @property
    def max_bytes(self) -> int:
        """Bytes that it can take at most."""
        return self.max_series * (self.columns * 8 + 2 * MAX_LABEL_BYTES)

    def _drop_old_columns(self, now_seconds: float) -> None:
        """Remove columns that are too old, so that the next reading has one; allocate the first rows."""
        if not self._values.size:
            self._values = np.full((min(_FIRST_ROWS, self.max_series), self.columns), np.nan)
        oldest = now_seconds - SECONDS
        if (
            self._times and now_seconds <= self._times[-1]
        ):  # the clock was set back: kept readings have no order any more
            self._times.clear()
            self._values[:] = np.nan
        dropped = next((index for index, time in enumerate(self._times) if time > oldest), len(self._times))
        dropped = max(dropped, len(self._times) - self.columns + 1)
        if dropped > 0:
            kept = len(self._times) - dropped
            self._values[:, :kept] = self._values[:, dropped : dropped + kept]
            self._values[:, kept:] = np.nan
            del self._times[:dropped]

    def _free_empty_rows(self) -> None:
        """Free the rows of series that have had no value for the whole time."""
        empty = np.all(np.isnan(self._values), axis=1).reshape(-1)
        for sample, row in list(self._rows.items()):
            if empty[row]:
                del self._rows[sample], self._labels[row]
                self._free.append(row)

    def _new_row_map(self, snapshot: StoreSnapshot) -> _RowMap:
        plain: list[tuple[int, int]] = []
        sums: list[tuple[int, int]] = []
        counts: list[tuple[int, int]] = []
        self.dropped_series = 0
        # A store may have a million kernels, which no ring keeps: to look at each would take a second.
        for family in np.diff(snapshot.layout.starts[: len(snapshot.layout.families) + 1]).tolist():
            self.dropped_series += max(0, family - self.max_series)
        for position, name, labels in _samples(snapshot.layout, self.max_series):
            if snapshot.values.schema[position] == NOT_A_HISTOGRAM:
                self._assign(plain, position, RingSample(name, labels))
            else:
                self._assign(sums, position, RingSample(f"{name}_sum", labels))
                self._assign(counts, position, RingSample(f"{name}_count", labels))
        return _RowMap(snapshot.layout, _index_arrays(plain), _index_arrays(sums), _index_arrays(counts))

    def _assign(self, pairs: list[tuple[int, int]], position: int, sample: RingSample) -> None:
        row = self._rows.get(sample)
        if row is None:
            row = self._new_row(sample)
        if row is None:
            self.dropped_series += 1
        else:
            pairs.append((position, row))

    def _new_row(self, sample: RingSample) -> int | None:
        if len(self._rows) >= self.max_series or len(sample.labels) > MAX_LABEL_BYTES:
            return None
        row = self._free.pop() if self._free else len(self._rows)
        if row >= len(self._values):
            rows = min(2 * len(self._values), self.max_series)
            larger = np.full((rows, self.columns), np.nan)
            larger[: len(self._values)] = self._values
            self._values = larger
        self._rows[sample] = row
        self._labels[row] = parsed_labels(sample.labels)
        return row


def _samples(layout: Layout, each: int | None = None) -> Iterator[tuple[int, str, bytes]]:
    """Position, family and rendered labels of each series; of each family the first ones alone, if limited."""
    for number, family in enumerate(layout.families):
        for position in range(int(layout.starts[number]), int(layout.starts[number + 1]))[:each]:
            begin = int(layout.label_offset[position])
            yield position, family.name, layout.arena[begin : begin + int(layout.label_length[position])].tobytes()


def samples_of(layout: Layout) -> Iterator[tuple[int, str, Labels]]:
    """Position, family and labels of each series of a layout."""
    for position, name, rendered in _samples(layout):
        yield position, name, parsed_labels(rendered)


def parsed_labels(rendered: bytes) -> Labels:
    """Labels of a series from the text of its page, sorted by name."""
    text = rendered.decode("utf-8", "replace").strip().strip("{}").rstrip(",")
    family = next(iter(text_string_to_metric_families(f"x{{{text}}} 0\n")))
    return tuple(sorted(family.samples[0].labels.items()))


def _index_arrays(pairs: list[tuple[int, int]]) -> tuple[Int64Array, Int64Array]:
    array = np.array(pairs, np.int64).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def read_at_intervals(
    ring: SampleRing, source: SnapshotSource, *, clock: Callable[[], float], wait: Callable[[float], bool]
) -> None:
    """Read the store at each interval until `wait` returns True; `wait` sleeps for the seconds that it is given."""
    while not wait(ring.interval_seconds):
        ring.read(source, clock())
