"""Client of the metric service that libtpu runs inside a program that uses TPUs.

Field numbers: AI-Hypercomputer/cloud-accelerator-diagnostics, tpu_info/tpu_info/proto/tpu_metric_service.proto.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kernelcast.exporter.grpc.client import UnaryClient
from kernelcast.exporter.grpc.messages import Field, Messages
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND

SERVICE: Final = "tpu.monitoring.runtime.RuntimeMetricService"
TIMEOUT_SECONDS: Final = 2.0
"""Longest duration of one call; the service is on this node."""
MAX_POINTS: Final = 4096
"""Limit of points of one metric: a host has eight chips at most, and a transfer a dozen buffer sizes."""

MESSAGES: Final[Messages] = {
    "MetricRequest": (Field("metric_name", 1, "string"),),
    "MetricResponse": (Field("metric", 1, "TPUMetric"),),
    "ListSupportedMetricsRequest": (),
    "ListSupportedMetricsResponse": (Field("supported_metric", 1, "SupportedMetric", repeated=True),),
    "SupportedMetric": (Field("metric_name", 1, "string"),),
    "TPUMetric": (Field("name", 1, "string"), Field("metrics", 3, "Metric", repeated=True)),
    "Metric": (
        Field("attribute", 1, "Attribute"),
        Field("gauge", 3, "Number"),
        Field("counter", 4, "Number"),
        Field("distribution", 5, "Distribution"),
        Field("start_timestamp", 7, "Timestamp"),
    ),
    # The first two fields of Gauge and Counter are the same; a gauge's further fields are a string and a bool.
    "Number": (Field("as_double", 1, "double"), Field("as_int", 2, "int64")),
    "Timestamp": (Field("seconds", 1, "int64"), Field("nanos", 2, "int32")),
    "Attribute": (Field("key", 1, "string"), Field("value", 2, "AttrValue")),
    "AttrValue": (
        Field("string_attr", 1, "string"),
        Field("int_attr", 3, "int64"),
        Field("kvlist_attr", 6, "KeyValueList"),
    ),
    "KeyValueList": (Field("attributes", 1, "Attribute", repeated=True),),
    "Distribution": (
        Field("count", 1, "int64"),
        Field("mean", 2, "double"),
        Field("sum_of_squared_deviation", 5, "double"),
        Field("bucket_options", 6, "BucketOptions"),
        Field("bucket_counts", 7, "int64", repeated=True),
    ),
    "BucketOptions": (
        Field("exponential_buckets", 2, "Exponential"),
        Field("explicit_buckets", 3, "Explicit"),
        Field("linear_buckets", 4, "Linear"),
    ),
    "Exponential": (
        Field("num_finite_buckets", 1, "int32"),
        Field("growth_factor", 2, "double"),
        Field("scale", 3, "double"),
    ),
    "Explicit": (Field("bounds", 1, "double", repeated=True),),
    "Linear": (
        Field("num_finite_buckets", 1, "int32"),
        Field("width", 2, "double"),
        Field("offset", 3, "double"),
    ),
}


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a metric, in the runtime's own unit.

    Attributes:
        attributes: Its attributes. A device's number is named `device`, whatever the runtime calls it.
        value: A number, or the message of a distribution.
        start_ns: Start time of a distribution, Unix nanoseconds; 0 if the runtime gives none, or one before 1970.
    """

    attributes: Mapping[str, str]
    value: Any
    start_ns: int = 0


class TpuRuntime:
    """Client of the service on one port. Only the thread that refreshes that port calls it.

    Args:
        address: `host:port`.
        timeout_seconds: Longest duration of one call.

    Raises:
        MissingExtraError: grpcio is not installed.
    """

    def __init__(self, address: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._client = UnaryClient(address, SERVICE, MESSAGES, timeout_seconds=timeout_seconds)

    def supported(self) -> frozenset[str]:
        """Return the names of the metrics that the runtime has.

        Raises:
            ServiceError: No answer, or none in time.
        """
        answer = self._client.call(
            "ListSupportedMetrics", "ListSupportedMetricsRequest", "ListSupportedMetricsResponse"
        )
        return frozenset(one.metric_name for one in answer.supported_metric)

    def points(self, name: str) -> tuple[Point, ...]:
        """Return the points of a metric; none while the program has no data of it.

        Raises:
            ServiceError: No answer, or none in time.
        """
        answer = self._client.call("GetRuntimeMetric", "MetricRequest", "MetricResponse", metric_name=name)
        return tuple(_points(answer.metric.metrics[:MAX_POINTS]))

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def _points(metrics: Any) -> Iterator[Point]:
    for metric in metrics:
        value = _value(metric)
        if value is not None:
            start = metric.start_timestamp
            start_ns = max(start.seconds * NANOSECONDS_PER_SECOND + start.nanos, 0)
            yield Point(dict(_attributes(metric.attribute)), value, start_ns)


def _value(metric: Any) -> Any:
    """Return a number, a distribution, or None if the message has neither."""
    if metric.HasField("distribution"):
        return metric.distribution
    number = metric.gauge if metric.HasField("gauge") else metric.counter
    if number.HasField("as_int"):
        return number.as_int
    return number.as_double if number.HasField("as_double") else None


def _attributes(attribute: Any) -> Iterator[tuple[str, str]]:
    """Yield names and values. An integer is always the device's number, which newer runtimes give as a string."""
    value = attribute.value
    if value.HasField("kvlist_attr"):
        for one in value.kvlist_attr.attributes:
            yield from _attributes(one)
    elif value.HasField("int_attr"):
        yield "device", str(value.int_attr)
    elif value.HasField("string_attr"):
        yield "device" if attribute.key == "device_ordinal" else attribute.key, value.string_attr
