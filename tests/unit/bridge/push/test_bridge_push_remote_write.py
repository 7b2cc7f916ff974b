"""Requests of remote write, read back by protobuf's own classes."""

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
)
from tests.support.push.prometheus_protobuf import Request
from tests.support.push.push_bench import MS, Bench, Labels, exports, launches, name_of, read_v1, read_v2

from kernelcast.bridge.inputs.parsing import Parsing
from kernelcast.bridge.push.remote_write.requests import request_v1, request_v2
from kernelcast.bridge.push.remote_write.rows import STALE_BITS
from kernelcast.columnar import Sample
from kernelcast.wire.catalogue import kernel


@pytest.mark.parametrize("read", [read_v1, read_v2])
def test_points_go_out_sorted_by_time_under_sorted_labels(read: Any) -> None:
    bodies = exports(launches(3, 30), launches(1, 10), launches(2, 20), launches(7, 10, name="copy"))
    found = {
        labels: [(s.value, s.timestamp) for s in series.samples] for labels, series in read(Bench().payloads(*bodies))
    }
    expected = (("__name__", "cuda_kernel_launches_total"), ("instance", "node-1"), ("job", "exporter"))
    assert found == {
        (*expected, ("kernel", "gemm")): [(1, 10), (2, 20), (3, 30)],
        (*expected, ("kernel", "copy")): [(7, 10)],
    }


def test_counters_carry_their_start_and_every_series_its_metadata() -> None:
    bodies = exports(launches(3, 30, start_ms=5), Sample(kernel.PROBE_COVERAGE, (), 30 * MS, 0.5))
    request = Request.FromString(request_v2(Bench().payloads(*bodies)[0]))
    found_metadata = {}
    for series in request.timeseries:
        name = request.symbols[series.labels_refs[1]]
        found_metadata[name] = (
            series.metadata.type,
            request.symbols[series.metadata.help_ref],
            series.samples[0].start_timestamp,
        )
    assert found_metadata[kernel.LAUNCHES.prometheus_name] == (1, kernel.LAUNCHES.help, 5)
    assert found_metadata[kernel.PROBE_COVERAGE.prometheus_name] == (2, kernel.PROBE_COVERAGE.help, 0)


def test_two_points_of_one_series_at_one_time_are_one_the_last_and_counted() -> None:
    bench = Bench()
    ((_, series),) = read_v1(bench.payloads(*exports(launches(1, 10)), *exports(launches(2, 10))))
    assert [(sample.value, sample.timestamp) for sample in series.samples] == [(2, 10)]
    assert bench.discarded("same_time") == 1


def test_the_end_of_a_series_is_a_stale_marker_to_the_last_bit() -> None:
    body = exports(Sample(kernel.PROBE_COVERAGE, (), 10 * MS, None))
    request = request_v1(Bench().payloads(*body)[0])
    assert struct.pack("<Q", STALE_BITS) in request
    ((_, series),) = read_v1(Bench().payloads(*body))
    assert math.isnan(series.samples[0].value)


def test_wire_only_points_are_not_stored_and_are_counted() -> None:
    bench = Bench()
    sample = Sample(kernel.VARIANT_LAUNCHES, (("variant", "v"),), 10 * MS, 1, MS)
    assert bench.payloads(*exports(sample)) == []
    assert bench.discarded("wire_only") == 1


def test_label_values_arrive_as_they_were_however_odd() -> None:
    value = 'a"b\\c\nd,e="f"'
    ((labels, _),) = read_v2(Bench().payloads(*exports(launches(1, 10, name=value))))
    assert dict(labels)["kernel"] == value


def test_a_large_batch_makes_several_requests_and_none_is_too_large() -> None:
    bodies = exports(*(launches(i, 10 + i, name=f"k{i % 7}") for i in range(100)))
    payloads = Bench(max_points=30).payloads(*bodies)
    assert [payload.points for payload in payloads] == [30, 30, 30, 10]
    seen: dict[Labels, list[int]] = {}
    for labels, series in read_v1(payloads):
        seen.setdefault(labels, []).extend(sample.timestamp for sample in series.samples)
    assert all(times == sorted(times) for times in seen.values())
    assert sum(map(len, seen.values())) == 100


def test_series_beyond_the_limit_are_learned_again_and_none_is_lost() -> None:
    bench = Bench(max_series=1000)
    for batch in range(4):
        samples = [launches(i, 10, name=f"{batch}-{i}") for i in range(600)]
        assert sum(1 for _ in read_v1(bench.payloads(*exports(*samples)))) == 600
    assert bench.conversion._directory.labels.count <= 1200


def test_an_input_may_know_more_series_than_are_remembered_whatever_its_own_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    defaults = Parsing.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "max_identities", 1000)  # for 2,000,000, which is the default of both limits
    bench = Bench(max_series=1000)
    for batch in range(5):
        text = "".join(f'm{{x="{batch * 500 + i}"}} 1\n' for i in range(500))
        assert sum(1 for _ in read_v1(bench.payloads(text.encode(), topic="scraped"))) == 500
    assert bench.conversion._directory.labels.count <= 1500


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 50), st.floats(allow_nan=False) | st.integers(-(2**53), 2**53)),
        min_size=1,
        max_size=60,
    )
)
def test_any_points_come_back_from_both_versions_as_a_dictionary_would_hold_them(
    points: list[tuple[int, int, float]],
) -> None:
    request = ExportMetricsServiceRequest()
    expected: dict[str, dict[int, float]] = {}
    for series, time_ms, value in points:
        metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name=f"m{series}")
        metric.gauge.data_points.add(time_unix_nano=time_ms * MS, as_double=value)
        expected.setdefault(f"m{series}", {})[time_ms] = float(value)
    payloads = Bench(max_points=17).payloads(request.SerializeToString())
    for read in (read_v1, read_v2):
        found: dict[str, dict[int, float]] = {}
        for labels, series in read(payloads):
            times = [sample.timestamp for sample in series.samples]
            assert times == sorted(set(times))
            found.setdefault(name_of(labels), {}).update({s.timestamp: s.value for s in series.samples})
        assert found == expected


def test_a_time_beyond_all_calendars_is_left_out_and_none_at_all_is_the_messages() -> None:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    metric.gauge.data_points.add(as_double=1, time_unix_nano=2**64 - 1)
    metric.gauge.data_points.add(as_double=2)
    bench = Bench()
    ((_, series),) = read_v1(bench.payloads(request.SerializeToString()))
    assert [(sample.value, sample.timestamp) for sample in series.samples] == [(2, 10)]
    assert bench.discarded("bad_time") == 1


def test_delta_points_are_left_out_and_counted_because_their_totals_would_not_survive_a_restart() -> None:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    metric.sum.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
    metric.sum.data_points.add(as_double=1, time_unix_nano=10 * MS)
    bench = Bench()
    assert bench.payloads(request.SerializeToString()) == []
    assert bench.discarded("temporality") == 1


def test_other_formats_go_out_too_under_their_own_names() -> None:
    bench = Bench()
    text = b'# TYPE requests counter\nrequests_total{path="/"} 5 1000\n'
    lines = b"cpu,host=a usage=0.5 2000000000\n"
    found = {}
    for body, topic in ((text, "scraped"), (lines, "telegraf")):
        for labels, series in read_v2(bench.payloads(body, topic=topic)):
            found[name_of(labels)] = (dict(labels), [(s.value, s.timestamp) for s in series.samples])
    assert found["requests_total"] == ({"__name__": "requests_total", "path": "/"}, [(5, 1000)])
    assert found["cpu_usage"][1] == [(0.5, 2000)]


@pytest.mark.parametrize("native", [True, False])
def test_numbers_and_histograms_of_one_time_have_one_target_info_and_nothing_counts_as_lost(*, native: bool) -> None:
    request = ExportMetricsServiceRequest()
    of_app = request.resource_metrics.add()
    for key, value in (("service.name", "app"), ("host.name", "h")):
        of_app.resource.attributes.add(key=key).value.string_value = value
    metrics = of_app.scope_metrics.add().metrics
    metrics.add(name="queue").gauge.data_points.add(as_double=1, time_unix_nano=10 * MS)
    for name, field in (("wait", "histogram"), ("work", "exponential_histogram")):
        histogram = getattr(metrics.add(name=name), field)
        histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
        histogram.data_points.add(count=0, sum=0, time_unix_nano=10 * MS)
    bench = Bench(native_histograms=native)
    found = [dict(labels)["__name__"] for labels, _ in read_v2(bench.payloads(request.SerializeToString()))]
    assert found.count("target_info") == 1
    assert bench.discarded("same_time") == 0


def test_resource_attributes_of_a_foreign_producer_are_its_target_info() -> None:
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    for key, value in (("service.name", "app"), ("service.instance.id", "i"), ("host.name", "h")):
        resource.resource.attributes.add(key=key).value.string_value = value
    metric = resource.scope_metrics.add().metrics.add(name="m")
    for time_ms in (10, 30, 20):
        metric.gauge.data_points.add(as_double=1, time_unix_nano=time_ms * MS)
    found = {
        name_of(labels): (dict(labels), series)
        for labels, series in read_v2(Bench().payloads(request.SerializeToString()))
    }
    labels, series = found["target_info"]
    assert labels == {"__name__": "target_info", "host_name": "h", "instance": "i", "job": "app"}
    assert [(sample.value, sample.timestamp) for sample in series.samples] == [(1, 30)]


def of_version(version: str, time_ms: int) -> bytes:
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    for key, value in (("service.name", "app"), ("service.instance.id", "i"), ("service.version", version)):
        resource.resource.attributes.add(key=key).value.string_value = value
    metric = resource.scope_metrics.add().metrics.add(name="m")
    metric.gauge.data_points.add(as_double=1, time_unix_nano=time_ms * MS)
    return request.SerializeToString()


def versions(payloads: Any) -> list[str]:
    return [dict(labels)["service_version"] for labels, _ in read_v2(payloads) if name_of(labels) == "target_info"]


def test_after_an_upgrade_the_target_info_has_the_new_attributes_whatever_their_order() -> None:
    bench = Bench()
    assert versions(bench.payloads(of_version("0.9", 1_000))) == ["0.9"]
    assert versions(bench.payloads(of_version("0.10", 2_000))) == ["0.9"]  # both may run
    assert versions(bench.payloads(of_version("0.10", 400_000))) == ["0.10"]
    assert versions(bench.payloads(of_version("0.9", 10**12))) == ["0.9"]
    assert versions(bench.payloads(of_version("0.10", 500_000))) == ["0.10"]  # the other one's clock was ahead


def test_two_resources_of_one_producer_have_one_target_info_at_its_newest_time() -> None:
    bench = Bench()
    payloads = bench.payloads(of_version("1", 2_000), of_version("2", 1_000))
    found = [series for labels, series in read_v2(payloads) if name_of(labels) == "target_info"]
    assert [[(s.value, s.timestamp) for s in series.samples] for series in found] == [[(1, 2_000)]]
    assert versions(payloads) == ["2"]


def test_parts_of_a_payload_have_all_its_points_and_no_series_twice() -> None:
    bodies = [
        body for time_ms in (10, 20) for body in exports(*(launches(1, time_ms, name=f"k{i}") for i in range(20)))
    ]
    (payload,) = Bench().payloads(*bodies)
    parts = payload.by_series()
    assert sum(part.points for part in parts) == payload.points == 40
    assert sum(len(np.unique(part.samples.series)) for part in parts) == 20
    assert [part.points for part in payload.by_message()] == [20, 20]
    assert [part.points for part in parts[0].by_point()] == [1] * parts[0].points
