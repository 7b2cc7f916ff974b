"""Points of remote write as columns, sorted by series and time, and their division into requests.

`conversion` makes them, `requests` encodes them, and `Delivery` divides a payload that was rejected.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.push.remote_write.directory import Directory
from kernelcast.bridge.push.remote_write.histograms import HistogramArrays
from kernelcast.bridge.tables.columns import Int32Array, Int64Array

PARTS: Final = 8
"""Parts of a rejected request: few series at fault are found in few requests."""

STALE_BITS: Final = 0x7FF0000000000002
"""The not-a-number by which Prometheus marks the end of a series: model/value/value.go."""


@dataclass(frozen=True, slots=True)
class SampleRows:
    """Samples or native histograms, arrays of one length n.

    Attributes:
        series: int32, its number in the directory.
        message: int32, which message of the batch brought it.
        time_ms: int64, when.
        start_ms: int64, since when it counts, 0 for none.
        value: int64: of a sample, the bits of its value; of a native histogram, its row among the decoded ones.
    """

    series: Int32Array
    message: Int32Array
    time_ms: Int64Array
    start_ms: Int64Array
    value: Int64Array

    def __len__(self) -> int:
        return len(self.series)

    def take(self, which: NDArray[np.intp] | NDArray[np.bool_] | slice) -> "SampleRows":
        """Return the rows that an index, a mask or a slice selects."""
        return SampleRows(*(getattr(self, field.name)[which] for field in fields(self)))

    @staticmethod
    def of(parts: Sequence["SampleRows"]) -> "SampleRows":
        """Concatenate rows."""
        return SampleRows(
            *(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(SampleRows))
        )

    def sorted(self) -> "SampleRows":
        """Return them sorted by series and time; of rows of one series and time, the last one stays."""
        if not len(self):
            return self
        order = np.lexsort((self.time_ms, self.series))
        rows = self.take(order)
        last = np.ones(len(rows), np.bool_)
        last[:-1] = (rows.series[1:] != rows.series[:-1]) | (rows.time_ms[1:] != rows.time_ms[:-1])
        return rows if last.all() else rows.take(last)


@dataclass(frozen=True, slots=True)
class WritePayload:
    """The rows of one remote write request.

    Attributes:
        directory: The series by number.
        samples: Sorted.
        natives: Native histograms, sorted.
        histograms: The decoded histograms that `natives` speaks of.
    """

    directory: Directory
    samples: SampleRows
    natives: SampleRows
    histograms: HistogramArrays

    @property
    def points(self) -> int:
        """Samples and native histograms."""
        return len(self.samples) + len(self.natives)

    def by_series(self) -> list[Self]:
        """Up to PARTS parts, each series whole in one."""
        numbers = np.unique(np.concatenate([self.samples.series, self.natives.series]))
        return [
            self._where(np.isin(self.samples.series, part), np.isin(self.natives.series, part))
            for part in np.array_split(numbers, min(PARTS, len(numbers)))
        ]

    def by_message(self) -> list[Self]:
        """One part for each message that brought something, in order."""
        messages = np.unique(np.concatenate([self.samples.message, self.natives.message]))
        return [self._where(self.samples.message == each, self.natives.message == each) for each in messages]

    def by_point(self) -> list[Self]:
        """One part for each point, in order of time."""
        none = slice(0, 0)
        parts = [self._where(slice(i, i + 1), none) for i in np.argsort(self.samples.time_ms, kind="stable")]
        return parts + [self._where(none, slice(i, i + 1)) for i in np.argsort(self.natives.time_ms, kind="stable")]

    def requests(self, max_points: int) -> list[Self]:
        """The same in requests of a limited number of points; those of one series stay in order."""
        if self.points <= max_points:
            return [self] if self.points else []
        none = slice(0, 0)
        steps = [slice(i, i + max_points) for i in range(0, max(len(self.samples), len(self.natives)), max_points)]
        parts = [self._where(step, none) for step in steps if step.start < len(self.samples)]
        return parts + [self._where(none, step) for step in steps if step.start < len(self.natives)]

    def _where(self, samples: NDArray[np.bool_] | slice, natives: NDArray[np.bool_] | slice) -> Self:
        return replace(self, samples=self.samples.take(samples), natives=self.natives.take(natives))
