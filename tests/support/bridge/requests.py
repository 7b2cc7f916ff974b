"""Export requests made by hand: an empty one of a shop, and sums of either temporality."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA


@dataclass(frozen=True)
class SumPoint:
    """A point of a sum: the count of (start_ns, time_ns]."""

    start_ns: int
    time_ns: int
    value: int
    series: str = "a"


def empty_request(instance: str = "host-1") -> tuple[ExportMetricsServiceRequest, Any]:
    """An empty request, and where its metrics go."""
    made = ExportMetricsServiceRequest()
    resource = made.resource_metrics.add()
    for key, value in (("service.name", "shop"), ("service.instance.id", instance)):
        attribute = resource.resource.attributes.add()
        attribute.key, attribute.value.string_value = key, value
    return made, resource.scope_metrics.add().metrics


def add_sum(metrics: Any, points: Iterable[SumPoint], *, name: str, temporality: int) -> None:
    """Add a monotonic sum to a request's metrics."""
    metric = metrics.add(name=name)
    metric.sum.aggregation_temporality, metric.sum.is_monotonic = temporality, True
    for point in points:
        written = metric.sum.data_points.add(
            start_time_unix_nano=point.start_ns, time_unix_nano=point.time_ns, as_int=point.value
        )
        attribute = written.attributes.add(key="kind")
        attribute.value.string_value = point.series


def sums(
    points: Iterable[SumPoint], *, name: str = "orders", temporality: int = AGGREGATION_TEMPORALITY_DELTA
) -> bytes:
    """A message of one sum."""
    made, metrics = empty_request()
    add_sum(metrics, points, name=name, temporality=temporality)
    return bytes(made.SerializeToString())
