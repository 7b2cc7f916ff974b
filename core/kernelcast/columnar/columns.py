"""The decoder's output: the points of one batch of messages, as numpy arrays.

`Decoder.decode` makes them for the bridge and the predictor. They are copies that belong to the caller: the decoder
keeps no reference, so any thread may have them.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.wire.errors import DecodeError

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]
UInt8Array = NDArray[np.uint8]
UInt64Array = NDArray[np.uint64]
FloatArray = NDArray[np.float64]

IS_INTEGER: Final = 1
"""Number points: the point was `as_int`; `integer` holds it exactly, `value` as a double."""
NO_RECORDED_VALUE: Final = 2
"""The series has no value at this time: OTLP's staleness flag, or a number point whose value was never set."""
HAS_SUM: Final = 4
"""Histograms: `sum` was on the wire; without it `total` is 0 and means nothing."""
EXPLICIT: Final = 8
"""Histograms: explicit bounds (`bounds`, `buckets`); otherwise exponential (`scale`, `positive`, `negative`)."""


@dataclass(frozen=True, slots=True)
class NumberColumns:
    """Points of gauges and sums, arrays of one length n, in the order of the messages.

    Attributes:
        series: int32, the series' number: dense, from 0; `Decoder.identity` returns its identity.
        message: int32, index of the point's message.
        start_ns: uint64, start of the cumulative or delta interval, 0 if not given.
        time_ns: uint64, time of the point.
        value: float64; of an integer point, the nearest double.
        integer: int64, exact value of an integer point, 0 otherwise.
        flags: uint8, IS_INTEGER and NO_RECORDED_VALUE.
    """

    series: Int32Array
    message: Int32Array
    start_ns: UInt64Array
    time_ns: UInt64Array
    value: FloatArray
    integer: Int64Array
    flags: UInt8Array


@dataclass(frozen=True, slots=True)
class HistogramColumns:
    """Points of histograms, arrays of one length m, with their buckets as CSR: row i owns `[indptr[i], indptr[i + 1])`.

    Attributes:
        series: int32, the series' number.
        message: int32, index of the message that brought the point.
        start_ns: uint64, start of the interval, 0 if not given.
        time_ns: uint64, time of the point.
        flags: uint8, NO_RECORDED_VALUE, HAS_SUM and EXPLICIT.
        count: uint64, observations.
        total: float64, their sum, where HAS_SUM.
        zero_count: uint64, exponential: observations in the zero bucket.
        zero_threshold: float64, exponential: half-width of the zero bucket.
        scale: int32, exponential: base is 2**(2**-scale).
        positive_offset: int32, exponential: index of the first positive bucket.
        positive_indptr: int64, length m + 1.
        positive: uint64, counts of positive buckets.
        negative_offset: int32, as positive, for negative observations.
        negative_indptr: int64, length m + 1.
        negative: uint64, counts of negative buckets.
        bounds_indptr: int64, length m + 1.
        bounds: float64, explicit: upper bounds, inclusive, as they were on the wire.
        bucket_indptr: int64, length m + 1.
        buckets: uint64, explicit: counts, not cumulative, one more than bounds, the last above the last bound; none of
            either when only count and sum were sent.
    """

    series: Int32Array
    message: Int32Array
    start_ns: UInt64Array
    time_ns: UInt64Array
    flags: UInt8Array
    count: UInt64Array
    total: FloatArray
    zero_count: UInt64Array
    zero_threshold: FloatArray
    scale: Int32Array
    positive_offset: Int32Array
    positive_indptr: Int64Array
    positive: UInt64Array
    negative_offset: Int32Array
    negative_indptr: Int64Array
    negative: UInt64Array
    bounds_indptr: Int64Array
    bounds: FloatArray
    bucket_indptr: Int64Array
    buckets: UInt64Array


@dataclass(frozen=True, slots=True)
class ExemplarColumns:
    """Points that have exemplars, k of them, in the order of the messages; see `exemplars.exemplars_of`.

    Attributes:
        row: int32, the point's row in the columns of its kind.
        histogram: uint8, 1 where those are `HistogramColumns`, 0 where they are `NumberColumns`.
        raw: The exemplar fields of each point, as they were on the wire; checked, not decoded.
    """

    row: Int32Array
    histogram: UInt8Array
    raw: tuple[bytes, ...]

    @classmethod
    def none(cls) -> "ExemplarColumns":
        """No exemplars."""
        return cls(np.zeros(0, np.int32), np.zeros(0, np.uint8), ())


@dataclass(frozen=True, slots=True)
class Decoded:
    """A batch of messages, decoded.

    Attributes:
        numbers: Points of gauges and sums.
        histograms: Points of explicit and exponential histograms.
        failures: Index of each message that could not be used, and why; such a message contributes nothing.
        unsupported: Points left out of messages that were used: those of metrics without a name.
        exemplars: Exemplars of the points.
    """

    numbers: NumberColumns
    histograms: HistogramColumns
    failures: tuple[tuple[int, DecodeError], ...]
    unsupported: int = 0
    exemplars: ExemplarColumns = field(default_factory=ExemplarColumns.none)
