"""Histograms as classic series, for `conversion`: cumulative buckets, `+Inf`, sum and count, each a sample.

One histogram with the bounds 1 and 5 takes five rows, whose series have numbers in a row (`Directory.group`):

    position  0         1         2            3     4
    sample    le="1.0"  le="5.0"  le="+Inf"    _sum  _count
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.push.remote_write.histograms import HistogramArrays, arrays_of
from kernelcast.bridge.push.remote_write.known import UNSEEN, KnownSeries
from kernelcast.bridge.push.remote_write.native import CLASSIC_BOUNDS, classic_bucket_counts
from kernelcast.bridge.push.remote_write.rows import STALE_BITS, SampleRows
from kernelcast.bridge.tables.columns import FloatArray, Int64Array
from kernelcast.columnar import HAS_SUM, NO_RECORDED_VALUE, HistogramColumns
from kernelcast.wire.histogram import CLASSIC_BOUNDS_SECONDS

_BOUNDS: Final = np.array(CLASSIC_BOUNDS_SECONDS)
NO_BUCKETS: Final[FloatArray] = np.zeros(0)


@dataclass(frozen=True, slots=True)
class PointTimes:
    """Milliseconds of some points, and since when they count, 0 for none."""

    time_ms: Int64Array
    start_ms: Int64Array


def classic_rows(
    columns: HistogramColumns, rows: NDArray[np.intp], times: PointTimes, known: KnownSeries, *, explicit: bool
) -> SampleRows:
    """Each histogram as the samples of its buckets, its sum and its count.

    Args:
        columns: Decoded histograms.
        rows: Which of them: points without a value, and either explicit or exponential histograms.
        times: One for each row.
        known: The series by number.
        explicit: Whether the histograms with a value have explicit bounds.
    """
    stale = (columns.flags[rows] & NO_RECORDED_VALUE) != 0
    sets = [_bounds(columns, row) if explicit else _BOUNDS for row in rows.tolist()]
    groups = [
        known.group(wire, bounds, absent=absent)
        for wire, bounds, absent in zip(columns.series[rows].tolist(), sets, stale.tolist(), strict=True)
    ]
    first = np.array([group[0] for group in groups], np.int64)
    width = np.array([group[1] for group in groups], np.int64)
    table = _ClassicRows(width)
    valued = rows[~stale]
    finite = _explicit_counts(columns, valued) if explicit else _classic_counts(arrays_of(columns), valued)
    table.put_buckets(finite, ~stale)
    table.put(width, columns.count[rows].astype(np.float64))
    table.put(width + 1, columns.total[rows])
    table.put(width + 2, columns.count[rows].astype(np.float64))
    owner = table.owner
    summed = (columns.flags[rows] & HAS_SUM) != 0
    kept = ((summed | stale)[owner] | (table.position != width[owner] + 1)) & (first != UNSEEN)[owner]
    made = SampleRows(
        (first[owner] + table.position).astype(np.int32),
        columns.message[rows][owner],
        times.time_ms[owner],
        times.start_ms[owner],
        np.where(stale[owner], np.int64(STALE_BITS), table.values.view(np.int64)),
    )
    return made.take(kept)


class _ClassicRows:
    """Values of the samples of some histograms, end to end.

    `owner` is the histogram of each row, `position` the row's place in it; `_width` is its number of finite buckets.
    """

    def __init__(self, width: Int64Array) -> None:
        sizes = width + 3
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        self._width = width
        self.owner = np.repeat(np.arange(len(width)), sizes)
        self.position = np.arange(self._starts[-1]) - np.repeat(self._starts[:-1], sizes)
        self.values: FloatArray = np.zeros(self._starts[-1])

    def put(self, position: Int64Array, values: FloatArray) -> None:
        """Set the sample at one position of each histogram."""
        self.values[self._starts[:-1] + position] = values

    def put_buckets(self, counts: FloatArray, present: NDArray[np.bool_]) -> None:
        """Set the finite buckets of the histograms that have a value."""
        self.values[(self.position < self._width[self.owner]) & present[self.owner]] = counts


def _bounds(columns: HistogramColumns, row: int) -> FloatArray:
    """The bounds of an explicit histogram; none where only count and sum were sent."""
    if columns.bucket_indptr[row] == columns.bucket_indptr[row + 1]:
        return NO_BUCKETS
    return columns.bounds[columns.bounds_indptr[row] : columns.bounds_indptr[row + 1]]


def _explicit_counts(columns: HistogramColumns, rows: NDArray[np.intp]) -> FloatArray:
    """Cumulative counts of all finite buckets, end to end."""
    starts, ends = columns.bucket_indptr[rows], columns.bucket_indptr[rows + 1]
    parts = [
        np.cumsum(columns.buckets[start : max(start, end - 1)])
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    return np.concatenate([*parts, NO_BUCKETS]).astype(np.float64)


def _classic_counts(points: HistogramArrays, rows: NDArray[np.intp]) -> FloatArray:
    counts: Int64Array = np.zeros((len(rows), CLASSIC_BOUNDS), np.int64)
    classic_bucket_counts(points, rows.astype(np.int64), counts)
    return counts.astype(np.float64).ravel()
