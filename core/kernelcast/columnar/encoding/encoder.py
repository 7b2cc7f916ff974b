"""Encodes samples as OTLP export requests, split between points before a request grows too long.

The exporter (`delivery/publish.py`) and the predictor (`publish.py`) call `encode` once an interval, on the thread that
publishes. In: a resource and its samples. Out: `Export`s, the values of Kafka messages.
"""

import struct
from collections.abc import Iterable, Iterator
from functools import lru_cache

from kernelcast.columnar.encoding import fields
from kernelcast.columnar.encoding.samples import Export, Resource, Sample
from kernelcast.columnar.series import Attributes, PointType, Temporality
from kernelcast.wire.catalogue import Kind, Metric
from kernelcast.wire.errors import WireError
from kernelcast.wire.histogram import SCALE, DurationTotals
from kernelcast.wire.topics import MAX_EXPORT_BYTES

NESTING_BYTES = 6
"""Largest size of a level of nesting: a tag of one byte and a length of at most five."""

KNOWN_ATTRIBUTES = 65_536
"""Size of the cache of encoded label sets, which lasts between exports; more than a node has series."""

# Field number of the attributes in each message of a point.
NUMBER_ATTRIBUTES = 7
HISTOGRAM_ATTRIBUTES = 9
EXPONENTIAL_ATTRIBUTES = 1

_START, _TIME, _AS_DOUBLE, _AS_INTEGER = (number << 3 | fields.FIXED64 for number in (2, 3, 4, 6))
# A tag before each number: time and value; with `SINCE`, the start first.
_INTEGER = struct.Struct("<BQBq")
_DOUBLE = struct.Struct("<BQBd")
_SINCE_INTEGER = struct.Struct("<BQBQBq")
_SINCE_DOUBLE = struct.Struct("<BQBQBd")

_PLAIN = (Kind.GAUGE, Kind.COUNTER)
"""Kinds whose points are the numbers that samples give."""

_ENDED = fields.integer(8, 1)
"""Flags with DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK set."""


def encode(
    resource: Resource, samples: Iterable[Sample], *, scope: str, max_bytes: int = MAX_EXPORT_BYTES
) -> Iterator[Export]:
    """Export requests of all samples; metrics in the order of their first sample, samples of each in theirs.

    Args:
        resource: The writer.
        samples: All are read before the first export is yielded, so that points of one metric lie together.
        scope: The instrumentation scope's name.
        max_bytes: No export is longer, unless one point alone is.

    Raises:
        WireError: A value that its metric's kind or the wire cannot carry.
    """
    request = _Request(resource, scope)
    for (metric, _detailed), (kind, points) in _by_metric(samples).items():
        request.open(metric, kind)
        if request.add_all(points, max_bytes):
            continue
        for field in points:
            size = request.size_with(field)
            if request.points and size > max_bytes:
                yield request.close()
                request = _Request(resource, scope)
                request.open(metric, kind)
                size = request.size_with(field)
            request.add(field, size)
    if request.points:
        yield request.close()


def _by_metric(samples: Iterable[Sample]) -> dict[tuple[Metric, bool], tuple[PointType, list[bytes]]]:
    """The points of each metric, as the fields that hold them."""
    groups: dict[tuple[Metric, bool], tuple[PointType, list[bytes]]] = {}
    # Nearly all samples are plain numbers, and many share a metric: its group is found by the object, not by its value.
    numbers: dict[int, list[bytes]] = {}
    seen: Attributes = ()
    parts = plain_parts(seen)
    for sample in samples:
        points = numbers.get(id(sample.metric))
        if points is not None:
            # Neighbours often share their labels' object: most of a number's cost is the hash of its labels.
            if sample.attributes is not seen:
                seen = sample.attributes
                parts = plain_parts(seen)
            if field := plain_number(sample, parts):
                points.append(field)
                continue
        key = sample.metric, sample.detailed
        kind = point_type(sample)
        points = groups.setdefault(key, (kind, []))[1]
        points.append(fields.delimited_first(point(sample, kind)))
        if sample.metric.kind in _PLAIN and not sample.detailed:
            numbers[id(sample.metric)] = points
    return groups


class _Request:
    """One export request that is being built. Its size is an upper bound: each length counts with its longest form."""

    def __init__(self, resource: Resource, scope: str) -> None:
        self._head = fields.delimited(1, *(_key_value(1, key, value) for key, value in resource.attributes))
        self._scope = fields.delimited(1, fields.text(1, scope))
        self._metrics: list[bytes] = []
        self._opened: tuple[PointType, bytes, bytes] | None = None
        self._open_points: list[bytes] = []
        self._size = len(self._head) + len(self._scope) + 2 * NESTING_BYTES
        self._overhead = 0
        self.points = 0

    def open(self, metric: Metric, kind: PointType) -> None:
        """Begin a metric; it is written only if a point follows."""
        self._finish_metric()
        named, container = _metric_fields(metric), _container_fields(kind, metric)
        self._opened = (kind, named, container)
        self._overhead = len(named) + len(container) + 2 * NESTING_BYTES

    def size_with(self, point_field: bytes) -> int:
        """Return an upper bound of the request's bytes with one more point."""
        return self._size + len(point_field) + (0 if self._open_points else self._overhead)

    def add(self, point_field: bytes, size: int) -> None:
        """Add a point to the opened metric; `size` is what `size_with` gave for it."""
        self._size = size
        self._open_points.append(point_field)
        self.points += 1

    def add_all(self, point_fields: list[bytes], max_bytes: int) -> bool:
        """Add all points of the opened metric if they fit; False where the caller must add them one by one."""
        size = self._size + self._overhead + sum(map(len, point_fields))
        if size > max_bytes:
            return False
        self._size = size
        self._open_points = point_fields
        self.points += len(point_fields)
        return True

    def close(self) -> Export:
        """The request's bytes."""
        self._finish_metric()
        scope_metrics = fields.delimited(2, self._scope, *self._metrics)
        return Export(fields.delimited(1, self._head, scope_metrics), self.points)

    def _finish_metric(self) -> None:
        if self._opened is not None and self._open_points:
            kind, named, container = self._opened
            points = fields.delimited(int(kind), *self._open_points, container)
            self._metrics.append(fields.delimited(2, named, points))
        self._open_points = []


def point_type(sample: Sample) -> PointType:
    """The kind of point a sample becomes.

    Raises:
        WireError: Durations in a metric that is no histogram, or the other way round.
    """
    kind = sample.metric.kind
    if isinstance(sample.value, DurationTotals) != (kind is Kind.HISTOGRAM):
        raise WireError(
            f"{sample.metric.otlp_name} is a {sample.metric.kind.value} in the catalogue and got a "
            f"{type(sample.value).__name__}; histograms take DurationTotals, other kinds int or float"
        )
    if kind is Kind.HISTOGRAM:
        return PointType.EXPONENTIAL_HISTOGRAM if sample.detailed else PointType.HISTOGRAM
    return PointType.SUM if kind is Kind.COUNTER else PointType.GAUGE


def point(sample: Sample, kind: PointType) -> bytes:
    """The data point's bytes.

    Raises:
        WireError: A time or value outside the wire's range.
    """
    try:
        if not isinstance(sample.value, DurationTotals):
            return _number(sample)
        if sample.start_ns:
            head = fields.two_fixed64(2, sample.start_ns, 3, sample.time_ns)
        else:
            head = fields.fixed64(3, sample.time_ns)
        head += fields.fixed64(4, sample.value.count) + fields.double(5, sample.value.sum_seconds)
        if kind is PointType.HISTOGRAM:
            return head + attribute_fields(sample.attributes, HISTOGRAM_ATTRIBUTES)
        return attribute_fields(sample.attributes, EXPONENTIAL_ATTRIBUTES) + head + _exponential_fields(sample.value)
    except struct.error as error:
        raise WireError(
            f"{sample.metric.otlp_name}{dict(sample.attributes)} is {sample.value} at {sample.time_ns} ns; times and "
            "counts must fit 64 bits without, integers 64 bits with a sign; send larger values as floats"
        ) from error


def _number(sample: Sample) -> bytes:
    """A number's data point: most points are one, so their fixed fields are packed at once."""
    value, attributes = sample.value, attribute_fields(sample.attributes, NUMBER_ATTRIBUTES)
    if value is None:
        since = fields.fixed64(2, sample.start_ns) if sample.start_ns else b""
        return since + fields.fixed64(3, sample.time_ns) + attributes + _ENDED
    if sample.metric.kind is Kind.INFO:
        value = 1
    if sample.start_ns:
        packed, tag = (_SINCE_INTEGER, _AS_INTEGER) if isinstance(value, int) else (_SINCE_DOUBLE, _AS_DOUBLE)
        return packed.pack(_START, sample.start_ns, _TIME, sample.time_ns, tag, value) + attributes
    if isinstance(value, int):
        return _INTEGER.pack(_TIME, sample.time_ns, _AS_INTEGER, value) + attributes
    return _DOUBLE.pack(_TIME, sample.time_ns, _AS_DOUBLE, value) + attributes


def plain_number(sample: Sample, parts: tuple[bytes, bytes, bytes]) -> bytes:
    """Return `delimited_first(_number(sample))`, faster; empty if the sample is no plain number, or out of range.

    Args:
        sample: The sample.
        parts: `plain_parts` of its labels.
    """
    _metric, _attributes, time_ns, value, start_ns, detailed = sample
    if detailed or (type(value) is not float and type(value) is not int):
        return b""
    gauge_head, since_head, tail = parts
    try:
        if start_ns:
            packed, tag = (_SINCE_DOUBLE, _AS_DOUBLE) if type(value) is float else (_SINCE_INTEGER, _AS_INTEGER)
            return since_head + packed.pack(_START, start_ns, _TIME, time_ns, tag, value) + tail
        packed, tag = (_DOUBLE, _AS_DOUBLE) if type(value) is float else (_INTEGER, _AS_INTEGER)
        return gauge_head + packed.pack(_TIME, time_ns, tag, value) + tail
    except struct.error:
        return b""


@lru_cache(maxsize=KNOWN_ATTRIBUTES)
def plain_parts(attributes: Attributes) -> tuple[bytes, bytes, bytes]:
    """Return the bytes before a gauge's packed number, those before a number with a start, and the attributes."""
    tail = attribute_fields(attributes, NUMBER_ATTRIBUTES)
    gauge_head, since_head = (fields.delimited_head(1, packed.size + len(tail)) for packed in (_DOUBLE, _SINCE_DOUBLE))
    return gauge_head, since_head, tail


def _exponential_fields(totals: DurationTotals) -> bytes:
    parts = fields.integer(6, fields.zigzag(SCALE))
    if totals.zero_count:
        parts += fields.fixed64(7, totals.zero_count)
    if totals.buckets:
        first, last = min(totals.buckets), max(totals.buckets)
        counts = b"".join(fields.varint(totals.buckets.get(index, 0)) for index in range(first, last + 1))
        parts += fields.delimited(8, fields.integer(1, fields.zigzag(first)), fields.delimited(2, counts))
    return parts


@lru_cache(maxsize=KNOWN_ATTRIBUTES)
def attribute_fields(attributes: Attributes, number: int) -> bytes:
    """The attributes of a point, as the field of that number."""
    return b"".join(_key_value(number, key, value) for key, value in attributes)


def _key_value(number: int, key: str, value: str) -> bytes:
    # The value's field is written even when empty: an empty text is a value, an empty AnyValue is none.
    return fields.delimited(
        number, fields.text(1, key), fields.delimited(2, fields.delimited(1, value.encode("utf-8", "replace")))
    )


@lru_cache(maxsize=4096)
def _metric_fields(metric: Metric) -> bytes:
    return fields.text(1, metric.otlp_name) + fields.text(3, metric.unit)


def _container_fields(kind: PointType, metric: Metric) -> bytes:
    if kind is PointType.GAUGE:
        return b""
    temporality = fields.integer(2, Temporality.CUMULATIVE)
    return temporality + fields.integer(3, 1) if metric.kind is Kind.COUNTER else temporality
