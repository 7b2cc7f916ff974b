"""Export requests for tests: random but valid, written in every way protobuf allows, and broken."""

import random
import struct
from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2

NAMES = ("a", "b", "DCGM_FI_DEV_GPU_UTIL", "länge", "x" * 70)
DOUBLES = (0.0, -0.0, 1.5, -7.25, float("nan"), float("inf"), -float("inf"), 5e-324, 1e300)
UINT64S = (0, 1, 127, 128, 2**32, 2**63, 2**64 - 1)


def text_value(text: str) -> AnyValue:
    return AnyValue(string_value=text)


def any_value(rng: random.Random, depth: int = 0) -> AnyValue:  # noqa: PLR0911  one switch
    choice = rng.randrange(8 if depth < 3 else 6)
    if choice == 0:
        return AnyValue(bool_value=rng.random() < 0.5)
    if choice == 1:
        return AnyValue(int_value=rng.randrange(-(2**63), 2**63))
    if choice == 2:
        return AnyValue(double_value=rng.choice(DOUBLES))
    if choice == 3:
        return AnyValue(bytes_value=rng.randbytes(3))
    if choice == 4:
        return AnyValue()
    if choice == 5:
        return text_value(rng.choice(("", "node1", "ünïcode", "y" * 40)))
    value = AnyValue()
    if choice == 6:
        value.array_value.values.extend(any_value(rng, depth + 1) for _ in range(rng.randrange(3)))
    else:
        value.kvlist_value.values.extend(
            KeyValue(key=rng.choice(NAMES), value=any_value(rng, depth + 1)) for _ in range(rng.randrange(3))
        )
    return value


def attributes(rng: random.Random) -> list[KeyValue]:
    keys = rng.sample(("gpu", "UUID", "device", "Hostname", "pod", ""), rng.choice((0, 1, 2, 3, 5)))
    if rng.random() < 0.1:
        keys += keys[:1]
    return [
        KeyValue(key=key, value=any_value(rng) if rng.random() < 0.2 else text_value(rng.choice("01234567")))
        for key in keys
    ]


def exemplar(rng: random.Random) -> metrics_pb2.Exemplar:
    made = metrics_pb2.Exemplar(filtered_attributes=attributes(rng), time_unix_nano=rng.choice(UINT64S))
    value = rng.choice(("as_double", "as_int", ""))
    if value:
        setattr(made, value, rng.randrange(9))
    if rng.random() < 0.5:
        made.trace_id, made.span_id = rng.randbytes(16), rng.randbytes(8)
    return made


def times(rng: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {"time_unix_nano": rng.choice(UINT64S), "attributes": attributes(rng)}
    if rng.random() < 0.5:
        made["start_time_unix_nano"] = rng.choice(UINT64S)
    if rng.random() < 0.2:
        made["flags"] = rng.choice((0, 1, 2, 3, 2**32 - 1))
    if rng.random() < 0.1:
        made["exemplars"] = [exemplar(rng) for _ in range(rng.choice((1, 1, 2, 5)))]
    return made


def number_point(rng: random.Random) -> metrics_pb2.NumberDataPoint:
    value: dict[str, Any] = rng.choice(
        (
            {"as_double": rng.choice(DOUBLES)},
            {"as_double": rng.random()},
            {"as_int": rng.choice((0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63)))},
            {},
        )
    )
    return metrics_pb2.NumberDataPoint(**times(rng), **value)


def _sum_and_range(rng: random.Random) -> dict[str, Any]:
    return {name: rng.choice(DOUBLES) for name in ("sum", "min", "max") if rng.random() < 0.7}


def summary_point(rng: random.Random) -> metrics_pb2.SummaryDataPoint:
    shared = times(rng)
    shared.pop("exemplars", None)
    quantiles = [
        metrics_pb2.SummaryDataPoint.ValueAtQuantile(quantile=rng.choice(DOUBLES), value=rng.choice(DOUBLES))
        for _ in range(rng.randrange(4))
    ]
    return metrics_pb2.SummaryDataPoint(
        **shared, count=rng.choice(UINT64S), sum=rng.choice(DOUBLES), quantile_values=quantiles
    )


def explicit_point(rng: random.Random) -> metrics_pb2.HistogramDataPoint:
    bounds = sorted(rng.sample((-1.0, 0.0, 0.5, 1.0, 2.5, float("inf")), rng.choice((0, 0, 1, 2, 4))))
    counts = [rng.choice(UINT64S) for _ in range(len(bounds) + 1)] if bounds or rng.random() < 0.5 else []
    if rng.random() < 0.05:
        counts = counts[:-1]
    if rng.random() < 0.05:
        bounds.reverse()
    return metrics_pb2.HistogramDataPoint(
        **times(rng),
        **_sum_and_range(rng),
        count=rng.choice(UINT64S),
        bucket_counts=counts,
        explicit_bounds=bounds,
    )


def exponential_point(rng: random.Random) -> metrics_pb2.ExponentialHistogramDataPoint:
    point = metrics_pb2.ExponentialHistogramDataPoint(
        **times(rng),
        **_sum_and_range(rng),
        count=rng.choice(UINT64S),
        scale=rng.choice((0, 3, -10, 20, 5, 21 if rng.random() < 0.1 else 1)),
        zero_count=rng.choice(UINT64S),
        zero_threshold=rng.choice((0.0, 1e-9)),
    )
    for side in (point.positive, point.negative):
        if rng.random() < 0.6:
            side.offset = rng.choice((0, -5, 100, -(2**31), 2**31 - 1))
            side.bucket_counts.extend(rng.choice(UINT64S) for _ in range(rng.choice((0, 1, 2, 9))))
    return point


def fill(rng: random.Random, metric: metrics_pb2.Metric) -> None:
    points = range(rng.choice((0, 1, 2, 3, 8)))
    kind = rng.randrange(6)
    temporality: Any = rng.choice((0, 1, 2, 2, 7))
    if kind == 0:
        metric.gauge.SetInParent()
        metric.gauge.data_points.extend(number_point(rng) for _ in points)
    elif kind == 1:
        metric.sum.aggregation_temporality = temporality
        metric.sum.is_monotonic = rng.random() < 0.5
        metric.sum.data_points.extend(number_point(rng) for _ in points)
    elif kind == 2:
        metric.histogram.aggregation_temporality = temporality
        metric.histogram.data_points.extend(explicit_point(rng) for _ in points)
    elif kind == 3:
        metric.exponential_histogram.aggregation_temporality = temporality
        metric.exponential_histogram.data_points.extend(exponential_point(rng) for _ in points)
    elif kind == 4:
        metric.summary.data_points.extend(summary_point(rng) for _ in points)


def request(rng: random.Random) -> ExportMetricsServiceRequest:
    """A random export request; now and then one the contract refuses."""
    made = ExportMetricsServiceRequest()
    for _ in range(rng.choice((0, 1, 1, 2))):
        resource = made.resource_metrics.add(schema_url=rng.choice(("", "https://a", "ü")))
        if rng.random() < 0.8:
            resource.resource.attributes.extend(attributes(rng))
            resource.resource.dropped_attributes_count = rng.choice((0, 3))
        for _ in range(rng.choice((0, 1, 1, 2))):
            scope = resource.scope_metrics.add(schema_url=rng.choice(("", "https://b")))
            if rng.random() < 0.8:
                scope.scope.name = rng.choice(NAMES)
                scope.scope.version = rng.choice(("", "1"))
                if rng.random() < 0.2:
                    scope.scope.attributes.extend(attributes(rng))
            for _ in range(rng.choice((0, 1, 2, 3))):
                metric = scope.metrics.add(name=rng.choice(("", *NAMES)), unit=rng.choice(("", "s", "µs")))
                metric.description = rng.choice(("", "a description", "größe"))
                if rng.random() < 0.1:
                    metric.metadata.extend(attributes(rng))
                fill(rng, metric)
    return made


def varint(value: int, padding: int = 0) -> bytes:
    """A varint, with `padding` bytes more than it needs."""
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80 or padding > 0:
        if value < 0x80:
            padding -= 1
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def delimited(number: int, body: bytes, padding: int = 0) -> bytes:
    return varint(number << 3 | 2) + varint(len(body), padding) + body


SCALARS: dict[int, tuple[int, Callable[[Any], bytes]]] = {
    FieldDescriptor.TYPE_DOUBLE: (1, lambda value: struct.pack("<d", value)),
    FieldDescriptor.TYPE_FIXED64: (1, lambda value: struct.pack("<Q", value)),
    FieldDescriptor.TYPE_SFIXED64: (1, lambda value: struct.pack("<q", value)),
    FieldDescriptor.TYPE_SINT32: (0, lambda value: varint(2 * value if value >= 0 else -2 * value - 1)),
    FieldDescriptor.TYPE_UINT32: (0, varint),
    FieldDescriptor.TYPE_UINT64: (0, varint),
    FieldDescriptor.TYPE_INT32: (0, varint),
    FieldDescriptor.TYPE_INT64: (0, varint),
    FieldDescriptor.TYPE_ENUM: (0, varint),
    FieldDescriptor.TYPE_BOOL: (0, lambda value: varint(int(value))),
}


class Writer:
    """Writes a message with its fields shuffled, repeated, padded, unpacked, and strangers between them.

    The bytes may have another meaning than the message: protobuf's reading of them is the truth.
    """

    def __init__(self, rng: random.Random, disturbance: float) -> None:
        self.rng = rng
        self.disturbance = disturbance

    def happens(self) -> bool:
        return self.rng.random() < self.disturbance

    def padding(self) -> int:
        """Bytes more than a tag or length needs; protobuf takes up to five bytes in all."""
        if not self.happens():
            return 0
        return 5 if self.rng.random() < 0.02 else self.rng.choice((1, 2, 3, 4))

    def message(self, message: Any) -> bytes:
        chunks: list[bytes] = []
        for descriptor, value in message.ListFields():
            items = value if descriptor.is_repeated else [value]
            if descriptor.type in SCALARS:
                chunks.extend(self._scalars(descriptor, items))
            else:
                chunks.extend(self._nested(descriptor, item) for item in items)
        if self.happens():
            self.rng.shuffle(chunks)
        if chunks and self.happens():
            chunks.insert(self.rng.randrange(len(chunks) + 1), self.rng.choice(chunks))
        if self.happens():
            chunks.insert(self.rng.randrange(len(chunks) + 1), self._stranger())
        return b"".join(chunks)

    def _nested(self, descriptor: FieldDescriptor, item: Any) -> bytes:
        padding = self.padding()
        if descriptor.type == FieldDescriptor.TYPE_MESSAGE:
            return delimited(descriptor.number, self.message(item), padding)
        return delimited(descriptor.number, item.encode() if isinstance(item, str) else item, padding)

    def _scalars(self, descriptor: FieldDescriptor, values: Any) -> list[bytes]:
        wire_type, write = SCALARS[descriptor.type]
        tag = varint(descriptor.number << 3 | wire_type, self.padding())
        items = [write(value) for value in values]
        if not descriptor.is_repeated or self.happens():
            return [tag + item for item in items]
        cut = self.rng.randrange(len(items) + 1) if self.happens() else 0
        return [delimited(descriptor.number, b"".join(run)) for run in (items[:cut], items[cut:]) if run or cut]

    def _stranger(self) -> bytes:
        """An unknown field: of an unused number, or of a known one with another wire type; or a group."""
        number = self.rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 16, 100, 2**29 - 1))
        wire_type = self.rng.choice((0, 1, 2, 3, 5))
        tag = varint(number << 3 | wire_type)
        if wire_type == 3:
            return tag + (self._stranger() if self.rng.random() < 0.3 else b"") + varint(number << 3 | 4)
        run = self.rng.choice((b"\0", b"\0", b"\x03\x0a\x01x", b"\x02\x0a\0"))
        body = {0: varint(self.rng.choice(UINT64S)), 1: bytes(8), 2: run, 5: bytes(4)}[wire_type]
        return tag + body


def broken(rng: random.Random, message: bytes) -> bytes:
    """The message with bytes changed, cut off, cut out, doubled, or made huge."""
    out = bytearray(message)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        if not out:
            return rng.randbytes(rng.randrange(20))
        at = rng.randrange(len(out))
        choice = rng.randrange(7)
        if choice == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif choice == 1:
            out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, 3, 4, 11, 12, rng.randrange(256)))
        elif choice == 2:
            del out[at:]
        elif choice == 3:
            del out[at : at + rng.randrange(1, 9)]
        elif choice == 4:
            out[at:at] = out[at : at + rng.randrange(1, 40)]
        elif choice == 5:
            out[at:at] = rng.choice(
                (b"\xff" * 9 + b"\x01", b"\xff" * 11, b"\x80" * 5, b"\xff\xff\xff\xff\x07", b"\x0b")
            )
        else:
            out[at : at + 1] = varint(rng.choice(UINT64S))
    return bytes(out)


def random_message(rng: random.Random) -> bytes:
    """An export request, plain, oddly written or broken."""
    plain = request(rng)
    writer = Writer(rng, rng.choice((0.0, 0.02, 0.1, 0.3)))
    written = writer.message(plain)
    return broken(rng, written) if rng.random() < 0.5 else written
