"""Histogram points as the input and output of `add_histograms`, and the check whether they can be added."""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.tables.columns import Int32Array, Int64Array, UInt8Array
from kernelcast.bridge.tables.points import UInt64Array
from kernelcast.columnar import EXPLICIT as POINT_EXPLICIT
from kernelcast.columnar import HistogramColumns
from kernelcast.columnar.compiled import allocating_kernel, inlined

LOWEST_SCALE = -10
"""The coarsest scale that producers may use: three buckets of it contain all doubles."""
LOWEST_INDEX, HIGHEST_INDEX = -2, 1
"""Bucket indices that doubles can have at the lowest scale; one more at the upper end, for producers that round up."""
LARGEST_COUNT = np.uint64(2**63 - 1)

POSITIVE, NEGATIVE, BOUNDS, BUCKETS = range(4)
"""The four parts of a point's buckets; of bounds, their bits."""
_PARTS: Final = (("positive", "positive"), ("negative", "negative"), ("bounds", "bounds"), ("bucket", "buckets"))
"""Field names in `columnar.HistogramColumns` of each part: prefix of the row pointers, and the data."""

ROW: Final = np.dtype(
    [
        ("start_ns", np.int64),
        ("time_ns", np.int64),
        ("count", np.uint64),
        ("total", np.float64),
        ("zero_count", np.uint64),
        ("zero_threshold", np.float64),
        ("row", np.int32),
        ("scale", np.int32),
        ("positive_offset", np.int32),
        ("negative_offset", np.int32),
        ("flags", np.uint8),
    ],
    align=True,
)
"""Scalars of a point, as in `columnar.HistogramColumns`, and the row of its series."""


class DeltaHistogramPoints(NamedTuple):
    """Histogram points, as input and as output of the compiled functions.

    There are only three arrays, because each array costs time wherever one compiled function passes it to another.

    Attributes:
        rows: ROW, one per point.
        ends: int64, shape (4, m + 1): row pointers of POSITIVE, NEGATIVE, BOUNDS and BUCKETS. Point i has
            `data[part, ends[part, i] : ends[part, i + 1]]`.
        data: uint64, shape (4, k): counts, or the bits of bounds.
    """

    rows: NDArray[np.void]
    ends: Int64Array
    data: UInt64Array

    @classmethod
    def of(cls, rows: Int32Array, points: HistogramColumns) -> "DeltaHistogramPoints":
        """Make them from decoded points and the rows of their series."""
        made = np.zeros(len(rows), ROW)
        made["row"] = rows
        for name in ROW.names or ():
            if name != "row":
                column = getattr(points, name)
                made[name] = column.view(np.int64) if name in ("start_ns", "time_ns") else column
        ends = np.stack([getattr(points, f"{name}_indptr") for name, _ in _PARTS])
        data: UInt64Array = np.zeros((len(_PARTS), int(ends[:, -1].max())), np.uint64)
        for i, (_, name) in enumerate(_PARTS):
            data[i, : ends[i, -1]] = getattr(points, name).view(np.uint64)
        return cls(made, ends, data)

    def blank(self, words: int) -> "DeltaHistogramPoints":
        """Copy the rows, with empty buckets and room for `words` words of each part."""
        return DeltaHistogramPoints(
            self.rows.copy(), np.zeros_like(self.ends), np.zeros((len(_PARTS), words), np.uint64)
        )

    def longer(self) -> "DeltaHistogramPoints":
        """Copy them with twice the room for buckets."""
        longer: UInt64Array = np.zeros((len(_PARTS), 2 * self.data.shape[1]), np.uint64)
        longer[:, : self.data.shape[1]] = self.data
        return self._replace(data=longer)

    def columns(self, points: HistogramColumns) -> HistogramColumns:
        """Convert to the decoder's columns, with series and message of the original points."""
        made: dict[str, Any] = {name: self.rows[name].copy() for name in ROW.names or () if name != "row"}
        for name in ("start_ns", "time_ns"):
            made[name] = made[name].view(np.uint64)
        for i, (ends, name) in enumerate(_PARTS):
            made[f"{ends}_indptr"] = self.ends[i].copy()
            made[name] = self.data[i, : self.ends[i, -1]].copy()
        made["bounds"] = made["bounds"].view(np.float64)
        return HistogramColumns(series=points.series, message=points.message, **made)


@inlined
def sum_of(counts: UInt64Array, start: int, stop: int, total: np.uint64, most: np.uint64) -> np.uint64:
    """Add the counts from start to stop to a total. A sum beyond `most` gives `most` plus 1, so that it cannot wrap."""
    for j in range(start, stop):
        if total > most or counts[j] > most - total:
            return most + np.uint64(1)
        total += counts[j]
    return total


@inlined
def in_range(offset: int, length: int, scale: int) -> bool:
    """Whether doubles can have these bucket indices."""
    if length == 0:
        return True
    shift = scale - LOWEST_SCALE
    return shift >= 0 and offset >> shift >= LOWEST_INDEX and (offset + length - 1) >> shift <= HIGHEST_INDEX


@allocating_kernel
def sound_histograms(points: DeltaHistogramPoints) -> UInt8Array:
    """Return 1 for each point that can be added; 0 if its buckets do not add up to its count or are out of range."""
    sound = np.ones(len(points.rows), np.uint8)
    for i in range(len(points.rows)):
        count = points.rows[i].count
        first, last = points.ends[BUCKETS, i], points.ends[BUCKETS, i + 1]
        if count > LARGEST_COUNT:
            sound[i] = 0
        elif points.rows[i].flags & POINT_EXPLICIT:
            low, high = points.ends[BOUNDS, i], points.ends[BOUNDS, i + 1]
            fits = last == first or last - first == high - low + 1
            sound[i] = fits and (
                last == first or sum_of(points.data[BUCKETS], first, last, np.uint64(0), count) == count
            )
        else:
            start, stop = points.ends[POSITIVE, i], points.ends[POSITIVE, i + 1]
            low, high = points.ends[NEGATIVE, i], points.ends[NEGATIVE, i + 1]
            total = sum_of(points.data[POSITIVE], start, stop, points.rows[i].zero_count, count)
            scale = points.rows[i].scale
            fits = in_range(points.rows[i].positive_offset, stop - start, scale)
            fits = fits and in_range(points.rows[i].negative_offset, high - low, scale)
            fits = fits and points.rows[i].zero_threshold >= 0.0 and np.isfinite(points.rows[i].zero_threshold)
            sound[i] = fits and sum_of(points.data[NEGATIVE], low, high, total, count) == count
    return sound
