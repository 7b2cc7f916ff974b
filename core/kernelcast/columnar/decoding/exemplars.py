"""Exemplars of points, decoded on demand: the bridge calls `exemplars_of` for the points that it keeps."""

from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.proto.metrics.v1 import metrics_pb2

from kernelcast.columnar.decoding.identities import canonical_attributes
from kernelcast.columnar.series import Attributes, PointType

_POINTS: Final[dict[PointType, Any]] = {
    PointType.SUM: metrics_pb2.NumberDataPoint,
    PointType.HISTOGRAM: metrics_pb2.HistogramDataPoint,
    PointType.EXPONENTIAL_HISTOGRAM: metrics_pb2.ExponentialHistogramDataPoint,
}


@dataclass(frozen=True, slots=True)
class PointExemplar:
    """One observation that went into a point.

    Attributes:
        value: The observed value.
        time_ns: Its time, Unix nanoseconds; 0 if unknown.
        trace_id: In hexadecimal; empty if it has none.
        span_id: In hexadecimal; empty if it has none.
        attributes: Attributes that its series does not have.
    """

    value: float
    time_ns: int
    trace_id: str
    span_id: str
    attributes: Attributes


def exemplars_of(type: PointType, raw: bytes) -> tuple[PointExemplar, ...]:  # noqa: A002  the field's name
    """Decode the exemplars of a point, in the order of the wire; those without a value are left out.

    Args:
        type: Type of the point; SUM for gauges as well.
        raw: `ExemplarColumns.raw`.
    """
    return tuple(
        PointExemplar(
            exemplar.as_double if exemplar.WhichOneof("value") == "as_double" else float(exemplar.as_int),
            exemplar.time_unix_nano,
            exemplar.trace_id.hex(),
            exemplar.span_id.hex(),
            canonical_attributes(exemplar.filtered_attributes),
        )
        for exemplar in _POINTS[type].FromString(raw).exemplars
        if exemplar.WhichOneof("value")
    )
