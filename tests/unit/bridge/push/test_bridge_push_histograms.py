"""Histograms as remote write sends them: native, or the classic series that a scrape gives."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from tests.support.push.push_bench import MS, Bench, exports, name_of, read_v1, read_v2

from kernelcast.bridge.push.remote_write.rows import WritePayload
from kernelcast.columnar import Sample
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.histogram import DurationTotals, classic_counts


def histogram_export(point: dict[str, Any], *, explicit: bool, count: int) -> bytes:
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    metric = resource.scope_metrics.add().metrics.add(name="wait", unit="s")
    data = metric.histogram if explicit else metric.exponential_histogram
    data.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
    added = data.data_points.add(time_unix_nano=10 * MS, start_time_unix_nano=MS, count=count, sum=1.5)
    for name, value in point.items():
        if name in ("positive", "negative"):
            getattr(added, name).offset = value[0]
            getattr(added, name).bucket_counts.extend(value[1])
        elif isinstance(value, list):
            getattr(added, name).extend(value)
        else:
            setattr(added, name, value)
    return request.SerializeToString()


def native_buckets(spans: Any, deltas: Any) -> dict[int, int]:
    found: dict[int, int] = {}
    index = count = at = 0
    for span in spans:
        index += span.offset
        for _ in range(span.length):
            count += deltas[at]
            at += 1
            if count:
                found[index] = count
            index += 1
    assert at == len(deltas)
    return found


def merged(offset: int, counts: Sequence[int], shift: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for index, count in enumerate(counts, start=offset):
        if count:
            found[(index >> shift) + 1] = found.get((index >> shift) + 1, 0) + count
    return found


BUCKETS = st.tuples(
    st.integers(-300, 300), st.lists(st.integers(0, 3) | st.just(0) | st.integers(0, 2**40), max_size=40)
)


@given(positive=BUCKETS, negative=BUCKETS, zero=st.integers(0, 9), scale=st.integers(-4, 12))
def test_a_native_histogram_has_the_buckets_that_were_sent_at_most_at_scale_8(
    positive: tuple[int, list[int]], negative: tuple[int, list[int]], zero: int, scale: int
) -> None:
    point = {"positive": positive, "negative": negative, "zero_count": zero, "scale": scale, "zero_threshold": 1e-9}
    count = sum(positive[1]) + sum(negative[1]) + zero
    body = histogram_export(point, explicit=False, count=count)
    payloads = Bench().payloads(body)
    shift = max(0, scale - 8)
    for read in (read_v1, read_v2):
        ((labels, series),) = read(payloads)
        assert name_of(labels) == "wait_seconds"
        (histogram,) = series.histograms
        assert (histogram.count_int, histogram.zero_count_int, histogram.sum) == (count, zero, 1.5)
        assert (histogram.schema, histogram.zero_threshold, histogram.timestamp) == (min(scale, 8), 1e-9, 10)
        assert native_buckets(histogram.positive_spans, histogram.positive_deltas) == merged(*positive, shift)
        assert native_buckets(histogram.negative_spans, histogram.negative_deltas) == merged(*negative, shift)
    assert histogram.start_timestamp == 1


@pytest.mark.parametrize(
    ("given", "sent"), [(0.25, 0.25), (0.0, 1e-128), (math.nan, 1e-128), (math.inf, 1e-128), (-1.0, 1e-128)]
)
def test_a_zero_bucket_without_a_width_has_the_width_that_a_scrape_gives(given: float, sent: float) -> None:
    point = {"positive": (0, [1]), "scale": 3, "zero_count": 1, "zero_threshold": given}
    for read in (read_v1, read_v2):
        ((_, series),) = read(Bench().payloads(histogram_export(point, explicit=False, count=2)))
        assert series.histograms[0].zero_threshold == sent


@pytest.mark.parametrize(
    ("point", "explicit", "count", "cause"),
    [
        ({"positive": (0, [1, 2]), "scale": 3}, False, 4, "malformed_histogram"),
        ({"positive": (0, [1, 2]), "scale": -5}, False, 3, "unsupported"),
        ({"explicit_bounds": [1.0, 2.0], "bucket_counts": [1, 1, 1]}, True, 4, "malformed_histogram"),
        ({"explicit_bounds": [-math.inf, 1.0], "bucket_counts": [1, 1, 1]}, True, 3, "malformed_histogram"),
        ({"explicit_bounds": [1.0, math.inf], "bucket_counts": [1, 1, 1]}, True, 3, "malformed_histogram"),
    ],
)
def test_a_histogram_that_prometheus_would_refuse_is_left_out_and_counted(
    point: dict[str, Any], count: int, cause: str, *, explicit: bool
) -> None:
    bench = Bench()
    assert bench.payloads(histogram_export(point, explicit=explicit, count=count)) == []
    assert bench.discarded(cause) == 1


def classic(payloads: Sequence[WritePayload]) -> dict[str, float]:
    found = {}
    for labels, series in read_v1(payloads):
        le = dict(labels).get("le", "")
        found[name_of(labels) + (f"{{{le}}}" if le else "")] = series.samples[0].value
    return found


def test_explicit_histograms_go_as_the_classic_series_that_a_scrape_gives() -> None:
    point = {"explicit_bounds": [0.5, 1.0, 2.5], "bucket_counts": [1, 0, 2, 4]}
    assert classic(Bench().payloads(histogram_export(point, explicit=True, count=7))) == {
        "wait_seconds_bucket{0.5}": 1,
        "wait_seconds_bucket{1.0}": 1,
        "wait_seconds_bucket{2.5}": 3,
        "wait_seconds_bucket{+Inf}": 7,
        "wait_seconds_sum": 1.5,
        "wait_seconds_count": 7,
    }


def test_bounds_that_change_make_other_series_and_the_end_marks_the_last_ones() -> None:
    bench = Bench()
    for bounds in ([1.0], [1.0, 2.0]):
        point = {"explicit_bounds": bounds, "bucket_counts": [1] * (len(bounds) + 1)}
        found = classic(bench.payloads(histogram_export(point, explicit=True, count=len(bounds) + 1)))
        assert len(found) == len(bounds) + 3
    ended = classic(bench.payloads(histogram_export({"flags": 1}, explicit=True, count=0)))
    assert len(ended) == 5
    assert all(math.isnan(value) for value in ended.values())


def test_receivers_without_native_histograms_get_scales_that_those_do_not_have() -> None:
    point = {"positive": (-1, [1, 2]), "scale": -5, "zero_count": 0}
    found = classic(Bench(native_histograms=False).payloads(histogram_export(point, explicit=False, count=3)))
    assert found["wait_seconds_bucket{1.0}"] == 1
    assert (found["wait_seconds_bucket{+Inf}"], found["wait_seconds_count"]) == (3, 3)


def test_receivers_without_native_histograms_get_the_classic_buckets_of_our_own_pages() -> None:
    totals = DurationTotals()
    for duration_ns in (0, 900, 5_000, 5_000, 3_000_000_000, 10**12):
        totals.observe(duration_ns)
    sample = Sample(kernel.DURATION, (("kernel", "k"),), 10 * MS, totals, MS, detailed=True)
    found = classic(Bench(native_histograms=False).payloads(*exports(sample)))
    counts = [value for name, value in found.items() if "_bucket" in name]
    assert counts == [*classic_counts(totals.zero_count, totals.buckets.items()), totals.count]
    assert found["cuda_kernel_duration_seconds_count"] == 6
