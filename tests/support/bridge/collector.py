"""A message as an OpenTelemetry Collector sends it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2

DELTA = metrics_pb2.AGGREGATION_TEMPORALITY_DELTA


CUMULATIVE = metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE


TIME_NS = 1_700_000_000_000_000_000


START_NS = TIME_NS - 60 * 10**9


NO_LABELS: Mapping[str, Any] = MappingProxyType({})


def attributes(values: Mapping[str, Any]) -> list[KeyValue]:
    def as_value(value: Any) -> AnyValue:
        if isinstance(value, bool):
            return AnyValue(bool_value=value)
        if isinstance(value, int):
            return AnyValue(int_value=value)
        if isinstance(value, float):
            return AnyValue(double_value=value)
        if isinstance(value, list):
            return AnyValue(array_value=ArrayValue(values=[as_value(item) for item in value]))
        return AnyValue(string_value=value)

    return [KeyValue(key=key, value=as_value(value)) for key, value in values.items()]


def number(
    value: Any, *, start_ns: int = 0, flags: int = 0, labels: Mapping[str, Any] = NO_LABELS
) -> metrics_pb2.NumberDataPoint:
    point = metrics_pb2.NumberDataPoint(
        attributes=attributes(labels), time_unix_nano=TIME_NS, start_time_unix_nano=start_ns, flags=flags
    )
    if isinstance(value, int):
        point.as_int = value
    elif value is not None:
        point.as_double = value
    return point


def gauge(name: str, *points: metrics_pb2.NumberDataPoint, unit: str = "", description: str = "") -> metrics_pb2.Metric:
    return metrics_pb2.Metric(
        name=name, unit=unit, description=description, gauge=metrics_pb2.Gauge(data_points=points)
    )


def total(
    name: str,
    *points: metrics_pb2.NumberDataPoint,
    unit: str = "",
    monotonic: bool = True,
    temporality: Any = CUMULATIVE,
) -> metrics_pb2.Metric:
    data = metrics_pb2.Sum(data_points=points, aggregation_temporality=temporality, is_monotonic=monotonic)
    return metrics_pb2.Metric(name=name, unit=unit, sum=data)


def histogram(
    name: str, counts: list[int], bounds: list[float], total: float | None, labels: Mapping[str, Any] = NO_LABELS
) -> metrics_pb2.Metric:
    point = metrics_pb2.HistogramDataPoint(
        attributes=attributes(labels),
        time_unix_nano=TIME_NS,
        start_time_unix_nano=START_NS,
        count=sum(counts),
        bucket_counts=counts,
        explicit_bounds=bounds,
    )
    if total is not None:
        point.sum = total
    data = metrics_pb2.Histogram(data_points=[point], aggregation_temporality=CUMULATIVE)
    return metrics_pb2.Metric(name=name, unit="s", histogram=data)


def exponential(name: str) -> metrics_pb2.Metric:
    buckets = metrics_pb2.ExponentialHistogramDataPoint.Buckets(offset=-1, bucket_counts=[2, 1])
    point = metrics_pb2.ExponentialHistogramDataPoint(
        time_unix_nano=TIME_NS, start_time_unix_nano=START_NS, count=4, sum=3.0, scale=0, zero_count=1, positive=buckets
    )
    data = metrics_pb2.ExponentialHistogram(data_points=[point], aggregation_temporality=CUMULATIVE)
    return metrics_pb2.Metric(name=name, unit="s", exponential_histogram=data)


def summary(name: str, *, count: int, total: float, quantiles: Mapping[float, float]) -> metrics_pb2.Metric:
    point = metrics_pb2.SummaryDataPoint(time_unix_nano=TIME_NS, start_time_unix_nano=START_NS, count=count, sum=total)
    for quantile, value in quantiles.items():
        point.quantile_values.add(quantile=quantile, value=value)
    return metrics_pb2.Metric(
        name=name, unit="s", description="of old", summary=metrics_pb2.Summary(data_points=[point])
    )


def collector_message() -> bytes:
    """Three resources, three scopes, every kind of metric, and what producers get wrong."""
    request = ExportMetricsServiceRequest()
    api = {"service.namespace": "shop", "service.name": "api", "service.instance.id": "pod-1"}
    first = request.resource_metrics.add()
    first.resource.attributes.extend(attributes(api | {"k8s.pod.name": "api-1", "host.cpus": 8, "tags": ["a", "b"]}))
    http = first.scope_metrics.add(schema_url="https://opentelemetry.io/schemas/1.26.0")
    http.scope.name, http.scope.version = "otelhttp", "0.49.0"
    http.scope.attributes.extend(attributes({"library.mascot": "bear"}))
    http.metrics.extend(
        [
            total(
                "http.server.requests",
                number(41, start_ns=START_NS, labels={"http.method": "GET", "ok": True}),
                unit="1",
            ),
            total(
                "http.server.requests",
                number(1, start_ns=START_NS, labels={"http.method": "PUT", "ok": False}),
                unit="1",
            ),
            histogram("http.server.duration", [1, 2, 0], [0.1, 0.5], 0.75, labels={"le": "mine"}),
            exponential("rpc.duration"),
            total("queue.length", number(-3), monotonic=False, unit="1"),
            total("dropped.since.last", number(5, start_ns=START_NS), temporality=DELTA),
        ]
    )
    plain = first.scope_metrics.add()
    plain.metrics.extend(
        [
            gauge(
                "system.cpu.utilization",
                number(0.25, labels={"cpu": 0}),
                unit="1",
                description='Share of "time"\nnot idle \\',
            ),
            gauge("temperature", number(float("nan"), labels={"a.b": "1", "a_b": "2", "empty": ""}), unit="Cel"),
            gauge("gone", number(None, flags=1)),
            gauge("日本", number(1)),
            summary("gc.pause", count=7, total=0.5, quantiles={0.5: 0.001, 0.99: 0.25, 1: float("nan")}),
            gauge("gc.pause.seconds.between", number(1)),
        ]
    )
    second = request.resource_metrics.add()
    second.resource.attributes.extend(attributes(api | {"service.instance.id": "pod-2", "job": "theirs"}))
    second.scope_metrics.add().metrics.extend(
        [
            gauge(
                "system.cpu.utilization",
                number(1.0, labels={"cpu": 0, "job": "mine"}),
                unit="1",
                description="another text",
            ),
            gauge("DCGM_FI_DEV_GPU_TEMP", number(61, labels={"gpu": "0"})),
        ]
    )
    without_resource = request.resource_metrics.add()
    without_resource.scope_metrics.add().metrics.append(
        gauge("1st.metric", number(2**53 + 1, labels={"1st": "x"}), unit="{thing}")
    )
    return request.SerializeToString()
