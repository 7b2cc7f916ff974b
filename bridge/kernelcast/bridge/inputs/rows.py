"""Points of a batch, gathered one after the other by the inputs in Python, and made into columns at its end.

`timed` gives points of any input without a time the append time of their message; `intake.batch` calls it.
"""

from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np

from kernelcast.bridge.tables.columns import Int64Array
from kernelcast.columnar import (
    EXPLICIT,
    HAS_SUM,
    IS_INTEGER,
    NO_RECORDED_VALUE,
    Decoded,
    DecoderLimits,
    ExemplarColumns,
    HistogramColumns,
    NumberColumns,
)
from kernelcast.wire.errors import DecodeError

STALE_NAN_BITS: Final = 0x7FF0000000000002
"""The NaN by which Prometheus says that a series has ended: prometheus, model/value/value.go."""
NANOSECONDS_PER_MS: Final = np.uint64(1_000_000)
_INT64: Final = range(-(2**63), 2**63)


class HistogramPoint(NamedTuple):
    """One point of a histogram; see `columnar.HistogramColumns`."""

    series: int
    time_ns: int
    observations: int
    total: float | None
    start_ns: int = 0
    zero_count: int = 0
    zero_threshold: float = 0.0
    scale: int = 0
    positive_offset: int = 0
    positive: tuple[int, ...] = ()
    negative_offset: int = 0
    negative: tuple[int, ...] = ()
    bounds: tuple[float, ...] = ()
    buckets: tuple[int, ...] = ()
    explicit: bool = True
    absent: bool = False


@dataclass(slots=True)
class BatchRows:
    """Points of a batch so far; for one thread.

    Each message is a transaction: `begin_message`, then `end_message`, or `roll_back` if it was refused.

    Attributes:
        series: Numbers of the series of number points.
        time_ns: Their times.
        value: Their values; integers stay exact.
        start_ns: Starts, by row, where given.
        histograms: Histogram points.
        unsupported: Points that were left out.
        exemplars: Exemplars of points: the point's row, whether it is a histogram's, and its exemplar fields.
    """

    series: list[int] = field(default_factory=list)
    time_ns: list[int] = field(default_factory=list)
    value: list[int | float] = field(default_factory=list)
    start_ns: dict[int, int] = field(default_factory=dict)
    histograms: list[HistogramPoint] = field(default_factory=list)
    unsupported: int = 0
    exemplars: list[tuple[int, bool, bytes]] = field(default_factory=list)
    _ends: list[tuple[int, int, int]] = field(default_factory=list)
    _message_start: tuple[int, int, int, int] = (0, 0, 0, 0)

    def begin_message(self) -> None:
        """Note the numbers of points before a message."""
        self._message_start = (len(self.series), len(self.histograms), self.unsupported, len(self.exemplars))

    def end_message(self, message: int, limits: DecoderLimits) -> None:
        """Note that a message is complete.

        Raises:
            DecodeError: It has more points than the limit.
        """
        numbers, histograms, *_ = self._message_start
        points = len(self.series) - numbers + len(self.histograms) - histograms
        if points > limits.points_per_message:
            raise DecodeError(
                f"message has {points} points; the limit is {limits.points_per_message}; "
                "send smaller batches from the producer"
            )
        self._ends.append((message, len(self.series), len(self.histograms)))

    def roll_back(self) -> None:
        """Drop the points of the message that has begun."""
        numbers, histograms, self.unsupported, exemplars = self._message_start
        del self.series[numbers:], self.time_ns[numbers:], self.value[numbers:], self.histograms[histograms:]
        del self.exemplars[exemplars:]
        while self.start_ns and next(reversed(self.start_ns)) >= numbers:  # rows are added in order
            self.start_ns.popitem()

    def series_of_message(self) -> set[int]:
        """Return the series that have points in the present message."""
        numbers, histograms, *_ = self._message_start
        return {*self.series[numbers:], *(point.series for point in self.histograms[histograms:])}

    def columns(self, failures: tuple[tuple[int, DecodeError], ...]) -> Decoded:
        """Return all points as arrays."""
        ends = np.array(self._ends, np.int64).reshape(-1, 3)
        messages = ends[:, 0].astype(np.int32)
        return Decoded(
            self._number_columns(np.repeat(messages, np.diff(ends[:, 1], prepend=0))),
            histogram_columns(self.histograms, np.repeat(messages, np.diff(ends[:, 2], prepend=0))),
            failures,
            self.unsupported,
            self._exemplar_columns(),
        )

    def _exemplar_columns(self) -> ExemplarColumns:
        return ExemplarColumns(
            np.array([row for row, _, _ in self.exemplars], np.int32),
            np.array([histogram for _, histogram, _ in self.exemplars], np.uint8),
            tuple(raw for _, _, raw in self.exemplars),
        )

    def _number_columns(self, message: np.ndarray[Any, np.dtype[np.int32]]) -> NumberColumns:
        n = len(self.series)
        value = np.array(self.value, np.float64)
        flags = np.zeros(n, np.uint8)
        integer = np.zeros(n, np.int64)
        whole = [row for row, kind in enumerate(map(type, self.value)) if kind is int]
        for row in whole:
            exact = self.value[row]
            if exact in _INT64:
                integer[row] = exact
                flags[row] = IS_INTEGER
        flags[value.view(np.uint64) == STALE_NAN_BITS] |= NO_RECORDED_VALUE
        start_ns = np.zeros(n, np.uint64)
        if self.start_ns:
            start_ns[list(self.start_ns)] = list(self.start_ns.values())
        return NumberColumns(
            np.array(self.series, np.int32), message, start_ns, np.array(self.time_ns, np.uint64), value, integer, flags
        )


def histogram_columns(points: list[HistogramPoint], message: np.ndarray[Any, np.dtype[np.int32]]) -> HistogramColumns:
    """Return points as columns, with buckets as one array and row pointers (CSR)."""

    def column(values: Any, kind: Any) -> Any:
        return np.fromiter(values, kind, len(points))

    def run(name: str, kind: Any) -> tuple[Any, Any]:
        rows = [getattr(point, name) for point in points]
        indptr = np.zeros(len(points) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=indptr[1:])
        return indptr, np.fromiter(chain.from_iterable(rows), kind, int(indptr[-1]))

    positive_indptr, positive = run("positive", np.uint64)
    negative_indptr, negative = run("negative", np.uint64)
    bounds_indptr, bounds = run("bounds", np.float64)
    bucket_indptr, buckets = run("buckets", np.uint64)
    return HistogramColumns(
        series=column((point.series for point in points), np.int32),
        message=message,
        start_ns=column((point.start_ns for point in points), np.uint64),
        time_ns=column((point.time_ns for point in points), np.uint64),
        flags=column(map(_flags, points), np.uint8),
        count=column((point.observations for point in points), np.uint64),
        total=column((point.total or 0.0 for point in points), np.float64),
        zero_count=column((point.zero_count for point in points), np.uint64),
        zero_threshold=column((point.zero_threshold for point in points), np.float64),
        scale=column((point.scale for point in points), np.int32),
        positive_offset=column((point.positive_offset for point in points), np.int32),
        positive_indptr=positive_indptr,
        positive=positive,
        negative_offset=column((point.negative_offset for point in points), np.int32),
        negative_indptr=negative_indptr,
        negative=negative,
        bounds_indptr=bounds_indptr,
        bounds=bounds,
        bucket_indptr=bucket_indptr,
        buckets=buckets,
    )


def timed(decoded: Decoded, append_ms: Int64Array) -> Decoded:
    """The same points; those without a time have their message's append time.

    Args:
        decoded: A batch.
        append_ms: Append time of each message, int64.
    """
    for columns in (decoded.numbers, decoded.histograms):
        timeless = np.flatnonzero(columns.time_ns == 0)
        if len(timeless):
            columns.time_ns[timeless] = append_ms[columns.message[timeless]].astype(np.uint64) * NANOSECONDS_PER_MS
    return decoded


def _flags(point: HistogramPoint) -> int:
    return (
        (EXPLICIT if point.explicit else 0)
        | (HAS_SUM if point.total is not None else 0)
        | (NO_RECORDED_VALUE if point.absent else 0)
    )
