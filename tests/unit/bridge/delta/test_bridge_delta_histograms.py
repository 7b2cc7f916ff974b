"""Delta histograms against the same observations counted all at once."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE, AGGREGATION_TEMPORALITY_DELTA
from tests.support.bridge.delta_streams import ORDER, Meter, request

from kernelcast.bridge.delta.accumulate import Accumulator
from kernelcast.bridge.delta.persistence.freeze import freeze, thaw
from kernelcast.bridge.delta.persistence.snapshot import SnapshotPart, TotalsSnapshot, load
from kernelcast.bridge.tables.exponential import MAX_BUCKETS
from kernelcast.columnar import HAS_SUM, HistogramColumns


def index_of(value: float, scale: int) -> int:
    """The bucket (base**i, base**(i + 1)] of a positive value, where no bound is hit by rounding."""
    return math.ceil(math.log2(value) * 2.0**scale) - 1


def buckets_of(values: list[float], scale: int) -> Counter[int]:
    return Counter(index_of(value, scale) for value in values)


def exponential(
    step: int, values: list[float], scale: int, *, threshold: float = 0.0, bare_sum: bool = False, temporality: int = 1
) -> bytes:
    made, metrics = request()
    metric = metrics.add()
    metric.name = "latency"
    metric.exponential_histogram.aggregation_temporality = temporality
    point = metric.exponential_histogram.data_points.add(
        start_time_unix_nano=10 * step + 10, time_unix_nano=10 * step + 20, count=len(values), scale=scale
    )
    point.zero_threshold = threshold
    point.zero_count = sum(abs(value) <= threshold for value in values)
    if not bare_sum:
        point.sum = sum(values)
    for side, chosen in (
        (point.positive, [value for value in values if value > threshold]),
        (point.negative, [-value for value in values if value < -threshold]),
    ):
        counts = buckets_of(chosen, scale)
        if counts:
            side.offset = min(counts)
            side.bucket_counts.extend(counts[i] for i in range(min(counts), max(counts) + 1))
    return bytes(made.SerializeToString())


def explicit(step: int, counts: list[int], bounds: list[float], *, total: float = 1.0) -> bytes:
    made, metrics = request()
    metric = metrics.add()
    metric.name = "latency"
    metric.histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
    point = metric.histogram.data_points.add(
        start_time_unix_nano=10 * step + 10, time_unix_nano=10 * step + 20, count=sum(counts), sum=total
    )
    if bounds:
        point.bucket_counts.extend(counts)
        point.explicit_bounds.extend(bounds)
    return bytes(made.SerializeToString())


def side(columns: HistogramColumns, i: int, name: str) -> Counter[int]:
    ends, data = getattr(columns, f"{name}_indptr"), getattr(columns, name)
    offset = int(getattr(columns, f"{name}_offset")[i])
    counts = data[ends[i] : ends[i + 1]].tolist()
    return Counter({offset + j: count for j, count in enumerate(counts) if count})


def buckets(columns: HistogramColumns, i: int) -> list[int]:
    found: list[int] = columns.buckets[columns.bucket_indptr[i] : columns.bucket_indptr[i + 1]].tolist()
    return found


def test_counts_of_explicit_buckets_add_up() -> None:
    out = Meter().take(explicit(0, [1, 2, 0], [1.0, 2.0]), explicit(1, [0, 4, 8], [1.0, 2.0], total=3.5)).histograms
    assert buckets(out, 1) == [1, 6, 8]
    assert (out.count.tolist(), out.total.tolist()) == ([3, 15], [1.0, 4.5])
    assert (out.start_ns.tolist(), out.time_ns.tolist()) == ([10, 10], [20, 30])
    assert out.bounds[out.bounds_indptr[1] : out.bounds_indptr[2]].tolist() == [1.0, 2.0]


def test_other_bounds_begin_a_new_total_with_a_new_start() -> None:
    meter = Meter()
    out = meter.take(explicit(0, [1, 2], [1.0]), explicit(1, [3, 4], [2.0]), explicit(2, [1, 1], [2.0])).histograms
    assert (buckets(out, 2), out.start_ns.tolist()) == ([4, 5], [10, 20, 20])
    assert meter.counted == {"first": 1, "bounds_changed": 1, "added": 1}


def test_a_late_point_with_other_bounds_is_not_added() -> None:
    meter = Meter()
    out = meter.take(explicit(0, [1, 2], [1.0]), explicit(2, [3, 4], [1.0]), explicit(1, [5, 6], [2.0])).histograms
    assert buckets(out, 2) == [4, 6]
    assert meter.counted["older"] == 1


def test_count_and_sum_alone_add_up() -> None:
    out = Meter().take(explicit(0, [3], []), explicit(1, [4], [])).histograms
    assert (out.count.tolist(), buckets(out, 1)) == ([3, 7], [])


def test_buckets_that_do_not_add_up_to_the_count_are_left_out() -> None:
    meter = Meter()
    meter.take(explicit(0, [1, 2], [1.0]))
    made, metrics = request()
    metric = metrics.add(name="latency")
    metric.histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
    metric.histogram.data_points.add(
        start_time_unix_nano=20, time_unix_nano=30, count=9, sum=1, bucket_counts=[1, 2], explicit_bounds=[1.0]
    )
    out = meter.take(made.SerializeToString()).histograms
    assert (buckets(out, 0), meter.counted["malformed"]) == ([1, 2], 1)


@pytest.mark.parametrize("count", [2**63, 2**64 - 1])
def test_a_count_that_no_total_can_hold_changes_no_total(count: int) -> None:
    """Counts on the wire are unsigned; read as signed, this one would reduce the total."""
    meter = Meter()
    bounds = [1.0]
    out = meter.take(explicit(0, [count, 0], bounds), explicit(1, [1, 2], bounds), explicit(2, [count, 0], bounds))
    assert (out.histograms.count.tolist()[1:], buckets(out.histograms, 2)) == ([3, 3], [1, 2])
    assert meter.counted == {"malformed": 2, "first": 1}


def test_a_count_that_would_not_fit_restarts_its_total_instead_of_wrapping_around() -> None:
    meter = Meter()
    out = meter.take(explicit(0, [2**63 - 2, 0], [1.0]), explicit(1, [5, 0], [1.0])).histograms
    assert (out.count.tolist(), buckets(out, 1)) == ([2**63 - 2, 5], [5, 0])
    assert meter.counted == {"first": 1, "overflow": 1}


def test_without_a_sum_in_one_point_the_total_has_none() -> None:
    meter = Meter()
    out = meter.take(exponential(0, [1.5], 0), exponential(1, [1.5], 0, bare_sum=True)).histograms
    assert [flags & HAS_SUM for flags in out.flags.tolist()] == [HAS_SUM, 0]


def test_a_cumulative_histogram_beside_a_delta_one_passes_with_its_buckets() -> None:
    plain = exponential(0, [1.5, 3.0, -7.0], 2, temporality=AGGREGATION_TEMPORALITY_CUMULATIVE)
    out = Meter().take(exponential(0, [9.0], 1), plain, exponential(1, [9.5], 1)).histograms
    assert side(out, 1, "positive") == buckets_of([1.5, 3.0], 2)
    assert side(out, 1, "negative") == buckets_of([7.0], 2)
    assert out.scale.tolist() == [1, 2, 1]
    assert side(out, 2, "positive") == buckets_of([9.0, 9.5], 1)


def test_a_larger_zero_threshold_takes_in_the_buckets_that_it_cuts() -> None:
    out = Meter().take(exponential(0, [1.5, 3.0, 9.0, -1.5], 0), exponential(1, [0.5], 0, threshold=2.5)).histograms
    assert (out.zero_count.tolist()[1], out.zero_threshold.tolist()[1]) == (4, 4.0)
    assert (side(out, 1, "positive"), side(out, 1, "negative")) == (Counter({3: 1}), Counter())


def test_a_total_never_has_more_buckets_than_it_may() -> None:
    meter = Meter()
    out = meter.take(exponential(0, [1e-200], 20), exponential(1, [1e200], 20)).histograms
    length = int(out.positive_indptr[2] - out.positive_indptr[1])
    assert length <= MAX_BUCKETS
    assert side(out, 1, "positive") == buckets_of([1e-200, 1e200], int(out.scale[1]))


@pytest.mark.parametrize(("scale", "offset"), [(-10, 2), (-10, -3), (0, 5000)])
def test_buckets_beyond_every_double_are_left_out(scale: int, offset: int) -> None:
    made, metrics = request()
    metric = metrics.add(name="latency")
    metric.exponential_histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
    point: Any = metric.exponential_histogram.data_points.add(time_unix_nano=5, count=1, scale=scale)
    point.positive.offset = offset
    point.positive.bucket_counts.append(1)
    meter = Meter()
    meter.take(made.SerializeToString())
    assert meter.counted == {"malformed": 1}


magnitudes = st.floats(2.0**-60, 2.0**60, exclude_min=True).filter(lambda value: math.log2(value) % 1 > 1e-6)
observations = st.builds(lambda value, sign: value * sign, magnitudes, st.sampled_from((1.0, 1.0, -1.0)))
batches = st.lists(st.tuples(st.lists(observations, max_size=6), st.integers(-2, 4)), min_size=1, max_size=12)


@given(batches, st.integers(1, 4), st.integers(0, 11))
def test_any_split_of_observations_gives_the_histogram_of_all(
    deltas: list[tuple[list[float], int]], at_once: int, restart_at: int
) -> None:
    meter = Meter()
    bodies = [exponential(step, values, scale) for step, (values, scale) in enumerate(deltas)]
    for begin in range(0, len(bodies), at_once):
        if begin <= restart_at < begin + at_once:
            meter = restarted(meter)
        out = meter.take(*bodies[begin : begin + at_once]).histograms
    every = [value for values, _ in deltas for value in values]
    last, scale = len(out.count) - 1, int(out.scale[-1])
    assert (int(out.count[last]), int(out.zero_count[last])) == (len(every), 0)
    assert out.total[last] == pytest.approx(sum(every), rel=1e-9, abs=1e-6 * sum(map(abs, every)))
    assert scale <= min(scale for _, scale in deltas)
    assert side(out, last, "positive") == buckets_of([value for value in every if value > 0], scale)
    assert side(out, last, "negative") == buckets_of([-value for value in every if value < 0], scale)


def test_snapshots_of_exponential_totals_keep_the_layout_that_older_bridges_read() -> None:
    meter = Meter()
    meter.take(exponential(0, [-5.0, 0.0, 0.0, 3.0, 3.0, 9.0], 0, threshold=0.25))
    rows = meter.totals.rows
    frozen = freeze(rows, rows.with_total(rows.in_use()), {0: 0})
    threshold_bits = int(np.float64(0.25).view(np.int64))
    capacity = int(rows.columns.capacity[rows.in_use()[0]])
    assert frozen["blocks"].tolist() == [0, threshold_bits, 2, 1, 3, 2, 1, capacity, 2, 0, 1, 1]


def restarted(meter: Meter) -> Meter:
    """Another accumulator, from a snapshot of the first; other series numbers, too."""
    rows = meter.totals.rows
    columns = freeze(rows, rows.with_total(rows.in_use()), {0: 0})
    parts = TotalsSnapshot(b"12345678", 5, ((("t", 0), meter.offset),), columns).dump()
    again = load([SnapshotPart.of(part) for part in parts])
    totals = Accumulator(ORDER, max_series=1000)
    assert thaw(totals.rows, again.columns, {0: 0}) == len(columns["kind"])
    totals.at(0, again.positions[0][1])
    np.testing.assert_array_equal(again.columns["last_ns"], columns["last_ns"])
    return Meter(totals, offset=meter.offset, counted=meter.counted)
