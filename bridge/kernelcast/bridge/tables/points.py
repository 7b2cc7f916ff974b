"""Decoded points as input of the store's compiled functions: tuples of arrays, times as int64."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.tables.columns import FloatArray, Int32Array, Int64Array, UInt8Array
from kernelcast.columnar import HistogramColumns, NumberColumns

UInt64Array = NDArray[np.uint64]


class NumberPoints(NamedTuple):
    """`columnar.NumberColumns`, length n."""

    series: Int32Array
    message: Int32Array
    start_ns: Int64Array
    time_ns: Int64Array
    value: FloatArray
    integer: Int64Array
    flags: UInt8Array


class HistogramPoints(NamedTuple):
    """`columnar.HistogramColumns`, length m, buckets as CSR."""

    series: Int32Array
    message: Int32Array
    start_ns: Int64Array
    time_ns: Int64Array
    flags: UInt8Array
    observations: UInt64Array
    total: FloatArray
    zero_count: UInt64Array
    zero_threshold_bits: Int64Array
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


def number_points(columns: NumberColumns) -> NumberPoints:
    """The same arrays, not copied."""
    return NumberPoints(
        columns.series,
        columns.message,
        columns.start_ns.view(np.int64),
        columns.time_ns.view(np.int64),
        columns.value,
        columns.integer,
        columns.flags,
    )


def histogram_points(columns: HistogramColumns) -> HistogramPoints:
    """The same arrays, not copied."""
    changed: dict[str, Any] = {
        "start_ns": columns.start_ns.view(np.int64),
        "time_ns": columns.time_ns.view(np.int64),
        "observations": columns.count,
        "zero_threshold_bits": columns.zero_threshold.view(np.int64),
    }
    same = {name: getattr(columns, name) for name in HistogramPoints._fields if name not in changed}
    return HistogramPoints(**changed, **same)
