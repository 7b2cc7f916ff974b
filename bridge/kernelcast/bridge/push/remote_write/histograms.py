"""Decoded histograms as a tuple of arrays, the input of `native`'s compiled functions."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.tables.columns import FloatArray, Int32Array, Int64Array, UInt8Array
from kernelcast.columnar import HistogramColumns

UInt64Array = NDArray[np.uint64]


class HistogramArrays(NamedTuple):
    """Columns of `columnar.HistogramColumns`, one row per point; row i has `x[x_indptr[i] : x_indptr[i + 1]]`."""

    flags: UInt8Array
    observations: UInt64Array
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


def arrays_of(columns: HistogramColumns) -> HistogramArrays:
    """The same arrays, not copied."""
    names = [name for name in HistogramArrays._fields if name != "observations"]
    return HistogramArrays(observations=columns.count, **{name: getattr(columns, name) for name in names})
