"""Delta messages for the tests of running totals, and the slow way to sum them up."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA

from kernelcast.bridge.delta.accumulate import Accumulator, named
from kernelcast.bridge.delta.sequence import Order
from kernelcast.bridge.tables.columns import MessageColumns
from kernelcast.columnar import Decoded, Decoder

ORDER = Order(tolerance_ns=10_000_000_000, settle_ms=300_000, max_gaps=128)
LATE_MS = 1_000_000
"""An append time that makes none of the tests' times one of the future."""


@dataclass(frozen=True)
class Delta:
    """A point of a sum: the count of (start_ns, time_ns]; absent with value None."""

    start_ns: int
    time_ns: int
    value: int | float | None
    series: str = "a"


def request(instance: str = "host-1") -> tuple[ExportMetricsServiceRequest, Any]:
    """An empty request, and where its metrics go."""
    made = ExportMetricsServiceRequest()
    resource = made.resource_metrics.add()
    for key, value in (("service.name", "shop"), ("service.instance.id", instance)):
        attribute = resource.resource.attributes.add()
        attribute.key, attribute.value.string_value = key, value
    return made, resource.scope_metrics.add().metrics


def sums(
    points: Iterable[Delta],
    *,
    name: str = "orders",
    monotonic: bool = True,
    temporality: int = AGGREGATION_TEMPORALITY_DELTA,
) -> bytes:
    """A message of delta sums."""
    made, metrics = request()
    metric = metrics.add()
    metric.name = name
    metric.sum.aggregation_temporality, metric.sum.is_monotonic = temporality, monotonic
    for point in points:
        written = metric.sum.data_points.add(start_time_unix_nano=point.start_ns, time_unix_nano=point.time_ns)
        attribute = written.attributes.add()
        attribute.key, attribute.value.string_value = "kind", point.series
        if point.value is None:
            written.flags = 1
        elif isinstance(point.value, int):
            written.as_int = point.value
        else:
            written.as_double = point.value
    return bytes(made.SerializeToString())


@dataclass
class Meter:
    """An accumulator behind a decoder, fed message by message."""

    totals: Accumulator = field(default_factory=lambda: Accumulator(ORDER, max_series=1000))
    decoder: Decoder = field(default_factory=Decoder)
    offset: int = 0
    counted: dict[str, int] = field(default_factory=dict)

    def take(
        self,
        *bodies: bytes,
        partition: int | Sequence[int] = 0,
        append_ms: int | Sequence[int] = LATE_MS,
        offset: int | None = None,
    ) -> Decoded:
        """Accumulate messages as one batch, of one partition and append time or each with its own."""
        first = self.offset if offset is None else offset
        count = len(bodies)
        messages = MessageColumns(
            np.full(count, partition, np.int32),
            np.arange(first, first + count, dtype=np.int64),
            np.full(count, append_ms, np.int64),
            np.ones(count, np.int64),
        )
        decoded, counts = self.totals.accumulate(self.decoder.decode(list(bodies)), messages, self.decoder)
        for outcome, number in named(counts):
            self.counted[outcome] = self.counted.get(outcome, 0) + number
        for number in np.unique(messages.partition).tolist():
            self.totals.at(number, max(first + count, int(self.totals.positions[number])))
        self.offset = max(self.offset, first + count)
        return decoded

    def sums(self, *points: Delta, **options: Any) -> list[tuple[int, int, float]]:
        """Accumulate points, each a message of its own; what comes out: start, time and value."""
        numbers = self.take(*[sums([point]) for point in points], **options).numbers
        return list(zip(numbers.start_ns.tolist(), numbers.time_ns.tolist(), numbers.value.tolist(), strict=True))


@dataclass
class Slow:
    """One series, summed up with lists: every rule in words of its own."""

    start: int | None = None
    begin: int = 0
    last: int = 0
    right: int = 0
    total: float = 0
    missing: list[tuple[int, int]] = field(default_factory=list)

    def add(self, point: Delta, latest: float = math.inf) -> str:
        """Add a point of which Kafka's clock allows times up to `latest`; what becomes of it."""
        start, time, value = point.start_ns, point.time_ns, point.value
        assert value is not None
        if self.start is None:
            self.start, self.begin, self.last, self.total = start or time, start, time, value
            return "first"
        if self.last > latest >= time > self.right:
            self.missing.clear()
            self.begin, self.last = start, time
            self.total += value
            return "clock_set"
        if time > self.last:
            outcome = "added"
            if start not in (0, time, self.last):
                outcome = "gap" if start > self.last else "overlap"
            if outcome == "gap":
                self.missing.append((self.last, start))
            elif outcome == "overlap" and start < self.begin:
                self.missing.append((self.last, time))
            if self.last <= latest < time:
                self.right = max(self.last, start if start <= latest else 0)
            self.begin, self.last = start, time
            self.total += value
            return outcome
        return self._late(point, latest)

    def _late(self, point: Delta, latest: float) -> str:
        """Add a point that does not end after the newest one, if it is missing; what becomes of it."""
        start, time, value = point.start_ns, point.time_ns, point.value
        assert self.start is not None
        assert value is not None
        if (start, time) == (self.begin, self.last):
            return "duplicate"
        for hole in self.missing:
            if start and start < time and hole[0] <= start and time <= hole[1]:
                self.missing.remove(hole)
                self.missing += [(a, b) for a, b in ((hole[0], start), (time, hole[1])) if a < b]
                if start <= latest < time:
                    self.right = max(self.right, start)
                if start < self.start:
                    return "older"
                self.total += value
                return "filled"
        return "older"


def shuffled(points: Sequence[Delta], order: Sequence[int]) -> list[Delta]:
    """Points by an order that may repeat and leave out."""
    return [points[i % len(points)] for i in order]
