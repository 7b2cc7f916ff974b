"""OTLP receivers get unchanged messages, without internal metrics."""

import gzip
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from cramjam import zstd
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
)
from tests.support.push.push_site import MS, P0, PushSite

from kernelcast.bridge.push.otlp import OtlpPayload
from kernelcast.columnar import Decoder, Sample
from kernelcast.wire.catalogue import BY_OTLP_NAME, CATALOGUE, Kind, kernel, translate
from kernelcast.wire.histogram import DurationTotals


@dataclass
class Collector:
    """Takes OTLP; refuses requests that hold a point of a bad kernel, or one that is older than its series' last."""

    bad_kernels: frozenset[str] = frozenset()
    ordered: bool = False
    script: Sequence[httpx.Response] = ()
    requests: list[ExportMetricsServiceRequest] = field(default_factory=list)
    headers: list[httpx.Headers] = field(default_factory=list)
    last: dict[str, int] = field(default_factory=dict)
    tries: int = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.tries += 1
        if self.script:
            answer, *self.script = self.script
            return answer
        body = request.content
        match request.headers.get("content-encoding"):
            case "gzip":
                body = gzip.decompress(body)
            case "zstd":
                body = bytes(zstd.decompress(body))
        export = ExportMetricsServiceRequest.FromString(body)
        taken = points_of([export])
        for name, _, time_ms in taken:
            if self.bad_kernels & {name} or (self.ordered and time_ms < self.last.get(name, 0)):
                return httpx.Response(400, text="out of order sample")
        self.last |= {name: time_ms for name, _, time_ms in taken}
        self.requests.append(export)
        self.headers.append(request.headers)
        return httpx.Response(200, content=ExportMetricsServiceResponse().SerializeToString())


def points_of(exports: Sequence[ExportMetricsServiceRequest]) -> list[tuple[str, str, int]]:
    """Kernel, metric and time of every point that is no histogram."""
    return [
        (next(pair.value.string_value for pair in point.attributes), metric.name, point.time_unix_nano // MS)
        for export in exports
        for resource in export.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in (*metric.sum.data_points, *metric.gauge.data_points)
    ]


def launches(time_ms: int, name: str = "gemm") -> Sample:
    return Sample(kernel.LAUNCHES, (("kernel", name),), time_ms * MS, time_ms, 1)


def site_for(collector: Any, **changes: Any) -> PushSite:
    return PushSite(collector, kind="otlp", **changes)


@pytest.mark.parametrize("compression", ["gzip", "zstd", "none"])
def test_messages_go_on_as_they_are_several_in_one_request(compression: str) -> None:
    collector = Collector()
    site = site_for(collector, compression=compression)
    for time_ms in (10, 20, 30):
        site.log.write(P0, launches(time_ms))
    site.push_all()
    (export,) = collector.requests
    assert export.SerializeToString() == b"".join(record.body or b"" for record in site.log.messages[P0])
    assert collector.headers[0]["content-type"] == "application/x-protobuf"
    assert site.own("points_total") == 3
    assert site.log.committed == {P0: 3}


def test_a_request_is_no_longer_than_asked() -> None:
    collector = Collector()
    site = site_for(collector, max_points=2)
    for time_ms in range(10, 17):
        site.log.write(P0, launches(time_ms))
    site.push_all()
    assert [len(points_of([export])) for export in collector.requests] == [2, 2, 2, 1]


def test_wire_only_points_are_removed_and_the_rest_of_the_message_is_sent() -> None:
    collector = Collector()
    site = site_for(collector)
    totals = DurationTotals()
    totals.observe(1000)
    site.log.write(
        P0,
        launches(10),
        Sample(kernel.VARIANT_LAUNCHES, (("variant", "v"),), 10 * MS, 1, 1),
        Sample(kernel.DURATION, (("kernel", "gemm"),), 10 * MS, totals, 1, detailed=True),
    )
    site.log.write(P0, Sample(kernel.VARIANT_LAUNCHES, (("variant", "v"),), 10 * MS, 1, 1))
    site.push_all()
    (export,) = collector.requests
    names = [metric.name for resource in export.resource_metrics for metric in resource.scope_metrics[0].metrics]
    assert sorted(names) == sorted([kernel.LAUNCHES.otlp_name, kernel.DURATION.otlp_name])
    assert site.discarded() == {"wire_only": 2}
    assert site.own("points_total") == 2


def test_every_exposed_metric_of_ours_gets_its_catalogued_name_from_a_receiver_that_translates() -> None:
    collector = Collector()
    site = site_for(collector)
    rows = [row for row in CATALOGUE if row.otlp_name and row.exposed and row.kind is not Kind.HISTOGRAM]
    site.log.write(P0, *(Sample(row, (("kernel", "k"),), 10 * MS, 1, 1) for row in rows))
    site.push_all()
    found = {
        translate(metric.name, metric.unit, Kind.COUNTER if metric.sum.is_monotonic else Kind.GAUGE)
        for export in collector.requests
        for resource in export.resource_metrics
        for metric in resource.scope_metrics[0].metrics
        if metric.sum.data_points or metric.gauge.data_points
    }
    assert found == {row.prometheus_name for row in rows}


def test_a_metric_of_ours_that_a_stranger_sends_as_another_kind_keeps_our_name() -> None:
    export = ExportMetricsServiceRequest()
    metric = export.resource_metrics.add().scope_metrics.add().metrics.add(name=kernel.LAUNCHES.otlp_name)
    metric.gauge.data_points.add(time_unix_nano=10 * MS, as_int=1).attributes.add(key="kernel")
    collector = Collector()
    site = site_for(collector)
    site.log.write_body(P0, export.SerializeToString())
    site.push_all()
    assert [name for _, name, _ in points_of(collector.requests)] == [kernel.LAUNCHES.prometheus_name]
    assert BY_OTLP_NAME[kernel.LAUNCHES.otlp_name].prometheus_name != kernel.LAUNCHES.otlp_name


def test_increases_of_a_counter_without_total_are_not_sent_as_if_they_were_its_value() -> None:
    row = next(row for row in CATALOGUE if row.kind is Kind.COUNTER and row.prometheus_name.startswith("DCGM_FI_DEV_"))
    export = ExportMetricsServiceRequest()
    metric = export.resource_metrics.add().scope_metrics.add().metrics.add(name=row.otlp_name, unit=row.unit)
    metric.sum.is_monotonic, metric.sum.aggregation_temporality = True, AGGREGATION_TEMPORALITY_DELTA
    metric.sum.data_points.add(start_time_unix_nano=MS, time_unix_nano=10 * MS, as_int=1).attributes.add(key="gpu")
    collector = Collector()
    site = site_for(collector)
    site.log.write_body(P0, export.SerializeToString())
    site.push_all()
    sent = collector.requests[0].resource_metrics[0].scope_metrics[0].metrics[0]
    assert not sent.gauge.data_points
    assert sent.sum.aggregation_temporality == AGGREGATION_TEMPORALITY_DELTA


def test_points_that_a_receiver_rejects_out_of_a_success_are_counted() -> None:
    response = ExportMetricsServiceResponse()
    response.partial_success.rejected_data_points = 2
    response.partial_success.error_message = "too many labels"
    site = site_for(Collector(script=[httpx.Response(200, content=response.SerializeToString())]))
    site.log.write(P0, *(launches(10, name=f"k{i}") for i in range(5)))
    site.push_all()
    assert site.discarded() == {"rejected": 2}
    assert site.own("points_total") == 3
    assert site.log.committed == {P0: 1}


@pytest.mark.parametrize("body", [b"", b"ok", b"\xff\xff"])
def test_a_receiver_that_answers_a_success_in_other_words_has_taken_all(body: bytes) -> None:
    site = site_for(Collector(script=[httpx.Response(200, content=body)]))
    site.log.write(P0, launches(10))
    site.push_all()
    assert site.own("points_total") == 1


def test_poison_between_good_messages_does_not_spoil_their_request() -> None:
    collector = Collector()
    site = site_for(collector)
    site.log.write(P0, launches(10))
    site.log.write_body(P0, b"\x0a\xff\xff")
    site.log.write(P0, launches(20))
    site.push_all()
    assert len(points_of(collector.requests)) == 2
    assert site.own("undecodable_messages_total", error="DecodeError") == 1


def test_messages_of_other_formats_cannot_be_passed_on_and_are_counted() -> None:
    collector = Collector()
    site = site_for(collector, keys=(("lines", 0),))
    site.log.write_body(("lines", 0), b"cpu,host=a usage=0.5 2000000000\n")
    site.push_all()
    assert collector.requests == []
    assert site.own("undecodable_messages_total", error="format") == 1
    assert site.log.committed == {("lines", 0): 1}


def test_only_the_series_that_a_receiver_refuses_is_lost() -> None:
    collector = Collector(bad_kernels=frozenset({"k7"}))
    site = site_for(collector)
    for time_ms in (10, 20):
        site.log.write(P0, *(launches(time_ms, name=f"k{i}") for i in range(40)))
    site.push_all()
    assert {(name, time_ms) for name, _, time_ms in points_of(collector.requests)} == {
        (f"k{i}", time_ms) for i in range(40) if i != 7 for time_ms in (10, 20)
    }
    assert len(points_of(collector.requests)) == 78
    assert site.discarded() == {"out_of_order": 2}
    assert collector.tries < 40


def test_messages_delivered_before_a_crash_are_found_refused_and_what_follows_them_arrives() -> None:
    collector = Collector(ordered=True)
    before = site_for(collector)
    before.member.takes_commits = False
    for time_ms in range(10, 15):
        before.log.write(P0, *(launches(time_ms, name=f"k{i}") for i in range(20)))
    before.push_all()
    for time_ms in range(15, 20):
        before.log.write(P0, *(launches(time_ms, name=f"k{i}") for i in range(20)))
    after = site_for(collector, log=before.log)
    after.push_all()
    expected = {(f"k{i}", time_ms) for i in range(20) for time_ms in range(10, 20)}
    assert {(name, time_ms) for name, _, time_ms in points_of(collector.requests)} == expected
    assert after.log.committed == {P0: 10}


def test_of_series_that_were_delivered_before_a_crash_only_the_delivered_points_are_refused() -> None:
    collector = Collector(ordered=True)
    site = site_for(collector)
    for time_ms in (10, 20):
        site.log.write(P0, *(launches(time_ms, name=f"k{i}") for i in range(40)))
    bodies = tuple(record.body or b"" for record in site.log.messages[P0])
    part = OtlpPayload(bodies, (40, 40)).by_series()[0]
    delivered = {name for name, _, _ in points_of([ExportMetricsServiceRequest.FromString(b"".join(part.bodies))])}
    assert len(delivered) > 1
    collector.last = dict.fromkeys(delivered, 15)
    site.push_all()
    names = {f"k{i}" for i in range(40)}
    expected = {(name, time_ms) for name in names for time_ms in (10, 20)} - {(name, 10) for name in delivered}
    assert {(name, time_ms) for name, _, time_ms in points_of(collector.requests)} == expected


def test_a_request_that_is_too_large_is_sent_in_parts() -> None:
    collector = Collector(script=[httpx.Response(413)])
    site = site_for(collector)
    site.log.write(P0, *(launches(10, name=f"k{i}") for i in range(40)))
    site.push_all()
    assert len(points_of(collector.requests)) == 40
    assert site.discarded() == {}


def test_parts_of_histograms_decode_to_the_same_points() -> None:
    collector = Collector(script=[httpx.Response(413)])
    site = site_for(collector)
    totals = DurationTotals()
    totals.observe(1000)
    samples = [
        Sample(kernel.DURATION, (("kernel", f"k{i}"),), 10 * MS, totals, 1, detailed=i % 2 == 0) for i in range(9)
    ]
    site.log.write(P0, *samples)
    site.push_all()
    sent = Decoder().decode([export.SerializeToString() for export in collector.requests]).histograms
    whole = Decoder().decode([record.body or b"" for record in site.log.messages[P0]]).histograms
    assert sorted(sent.count.tolist()) == sorted(whole.count.tolist())
    assert len(sent.series) == len(set(sent.series.tolist())) == 9
    for export in collector.requests:
        for resource in export.resource_metrics:
            for metric in resource.scope_metrics[0].metrics:
                data = metric.histogram if metric.HasField("histogram") else metric.exponential_histogram
                assert data.aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE


def test_a_receiver_that_does_not_know_the_format_is_asked_again_not_given_up() -> None:
    site = site_for(Collector(script=[httpx.Response(415)] * 3))
    site.log.write(P0, launches(10))
    site.push_all()
    assert site.own("retries_total", cause="configuration") == 3
    assert site.own("points_total") == 1


def test_all_names_of_the_catalogue_are_known_to_prometheus_as_they_go_out() -> None:
    assert all(re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]*", row.prometheus_name) for row in CATALOGUE)
