"""Rewrites messages, for `otlp`: receivers of OTLP translate its names to Prometheus names themselves.

The catalogue decides: metrics marked for the wire only are left out, and a metric whose name the receiver would
translate differently is sent under its Prometheus name.
"""

from functools import lru_cache
from typing import Any, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from kernelcast.columnar import PointType, SeriesIdentity, Temporality
from kernelcast.wire.catalogue import BY_OTLP_NAME, Kind, translate

PLAIN: Final = 0
WIRE_ONLY: Final = 1
RENAMED: Final = 2
"""Treatments of a series: sent unchanged, left out, or sent under another name."""
UNSEEN: Final = 255
"""Not determined yet."""


def treatment(identity: SeriesIdentity) -> int:
    """Treatment of a series: PLAIN, WIRE_ONLY or RENAMED."""
    return _treatment(identity.name, identity.unit, _kind(int(identity.type), monotonic=identity.monotonic))


def rewritten(body: bytes) -> bytes:
    """Return an export request without wire-only metrics, and with the names that are translated right."""
    request = ExportMetricsServiceRequest.FromString(body)
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            kept = [metric for metric in scope.metrics if _apply_treatment(metric)]
            if len(kept) < len(scope.metrics):
                copies = [type(metric).FromString(metric.SerializeToString()) for metric in kept]
                del scope.metrics[:]
                scope.metrics.extend(copies)
    return request.SerializeToString()


@lru_cache(maxsize=10_000)
def _treatment(name: str, unit: str, kind: Kind) -> int:
    row = BY_OTLP_NAME.get(name)
    if row is None:
        return PLAIN
    if not row.exposed:
        return WIRE_ONLY
    return PLAIN if translate(name, unit, kind) == row.prometheus_name else RENAMED


def _apply_treatment(metric: Any) -> bool:
    """Rename a metric so that it is translated right; returns False if it must not be sent."""
    field = metric.WhichOneof("data")
    number = metric.DESCRIPTOR.fields_by_name[field].number if field else PointType.GAUGE
    kind = _kind(number, monotonic=metric.sum.is_monotonic if field == "sum" else False)
    verdict = _treatment(metric.name, metric.unit, kind)
    if verdict == RENAMED:
        metric.name, metric.unit = BY_OTLP_NAME[metric.name].prometheus_name, ""
        is_total = kind is Kind.COUNTER and metric.sum.aggregation_temporality == Temporality.CUMULATIVE
        if is_total and translate(metric.name, "", kind) != metric.name:
            # As a counter it would get `_total`: DCGM's names have none, and dashboards ask for those names. Increases
            # (deltas) stay a sum, because as a gauge they would be taken for the counter's value.
            points = [type(point).FromString(point.SerializeToString()) for point in metric.sum.data_points]
            metric.gauge.data_points.extend(points)
    return verdict != WIRE_ONLY


def _kind(field: int, *, monotonic: bool) -> Kind:
    if field in (PointType.HISTOGRAM, PointType.EXPONENTIAL_HISTOGRAM):
        return Kind.HISTOGRAM
    return Kind.COUNTER if field == PointType.SUM and monotonic else Kind.GAUGE
