"""Sums over columns of durations, without a loop over the events."""

from operator import mul

import numpy as np

from kernelcast.exporter.replay.trace import IntArray
from kernelcast.wire.histogram import DurationTotals, bucket_index


def bucket_indices(duration_ns: IntArray) -> IntArray:
    """The scale-3 bucket of each duration, shape (n,); undefined for 0."""
    values, inverse = np.unique(duration_ns, return_inverse=True)
    buckets = np.array([bucket_index(value) if value > 0 else 0 for value in values.tolist()], dtype=np.int64)
    return buckets[inverse.reshape(-1)] if len(values) else buckets


def durations_of(duration_ns: IntArray, bucket: IntArray) -> DurationTotals:
    """Count, exact sum and exact sum of squares (which outgrows 64 bits), and buckets, of some durations."""
    values = duration_ns.tolist()
    positive = duration_ns > 0
    indices, counts = np.unique(bucket[positive], return_counts=True)
    return DurationTotals(
        count=len(values),
        sum_ns=sum(values),
        sum_squares_ns2=sum(map(mul, values, values)),
        zero_count=len(values) - int(positive.sum()),
        buckets=dict(zip(indices.tolist(), counts.tolist(), strict=True)),
    )
