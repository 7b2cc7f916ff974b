"""What a series number stands for, in canonical form."""

import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from kernelcast.columnar.layout import UNUSED, USED, State, Store
from kernelcast.columnar.lookup import COUNT_PART, METRIC_KEY_HEADER, QUANTILE_BYTES, SUM_PART
from kernelcast.columnar.rendering import as_text, number_text
from kernelcast.columnar.series import Attributes, PointType, SeriesIdentity, Temporality

LABEL_SETS_KEPT: Final = 4096
"""A producer sends the same few attributes with each of its metrics: they are read once, and shared."""

POINTS: Final[dict[PointType, Any]] = {
    PointType.GAUGE: metrics_pb2.NumberDataPoint,
    PointType.SUM: metrics_pb2.NumberDataPoint,
    PointType.HISTOGRAM: metrics_pb2.HistogramDataPoint,
    PointType.EXPONENTIAL_HISTOGRAM: metrics_pb2.ExponentialHistogramDataPoint,
    PointType.SUMMARY: metrics_pb2.SummaryDataPoint,
}
_PARTS: Final = {SUM_PART: "sum", COUNT_PART: "count"}


def canonical_attributes(attributes: Iterable[KeyValue]) -> Attributes:
    """Attributes sorted by key; of a key that stands twice, the last value (OTLP forbids it, producers do it)."""
    values = {sys.intern(attribute.key): as_text(attribute.value) for attribute in attributes}
    return tuple(sorted(values.items()))


@dataclass(frozen=True, slots=True)
class MetricContext:
    """What the series of one metric, scope and resource have in common."""

    resource: Attributes
    scope_name: str
    scope_version: str
    scope_attributes: Attributes
    schema_url: str
    name: str
    unit: str
    type: PointType
    temporality: Temporality
    monotonic: bool
    description: str
    part: str


class Identities:
    """Reads identities out of the decoder's stores; what many series share is read once."""

    def __init__(self) -> None:
        self._attributes = lru_cache(LABEL_SETS_KEPT)(_attributes)
        self._metrics: dict[int, tuple[int, MetricContext]] = {}
        self._resources: dict[int, tuple[int, Attributes]] = {}

    def of(self, state: State, number: int) -> SeriesIdentity:
        """The identity of a series.

        Raises:
            KeyError: The number stands for nothing.
        """
        series = state.series
        if not 0 <= number < series.counters[USED] or series.entries["parent"][number] == UNUSED:
            raise KeyError(number)
        metric = self._metric(state, int(series.entries["parent"][number]))
        return SeriesIdentity(
            resource=metric.resource,
            scope_name=metric.scope_name,
            scope_version=metric.scope_version,
            name=metric.name,
            unit=metric.unit,
            type=metric.type,
            temporality=metric.temporality,
            monotonic=metric.monotonic,
            attributes=self._attributes(metric.type, _bytes(series, number)),
            scope_attributes=metric.scope_attributes,
            schema_url=metric.schema_url,
            part=metric.part,
            description=metric.description,
        )

    def _metric(self, state: State, number: int) -> MetricContext:
        # A context's number may have been given to another one since: the stamp tells.
        stamp = int(state.contexts.entries["stamp"][number])
        known = self._metrics.get(number)
        if known is None or known[0] != stamp:
            known = (stamp, self._read_metric(state, number))
            self._metrics[number] = known
        return known[1]

    def _resource(self, contexts: Store, number: int) -> Attributes:
        stamp = int(contexts.entries["stamp"][number])
        known = self._resources.get(number)
        if known is None or known[0] != stamp:
            resource = Resource.FromString(_bytes(contexts, number))
            known = (stamp, canonical_attributes(resource.attributes))
            self._resources[number] = known
        return known[1]

    def _read_metric(self, state: State, number: int) -> MetricContext:
        contexts = state.contexts
        scope_number = int(contexts.entries["parent"][number])
        scope = InstrumentationScope.FromString(_bytes(contexts, scope_number))
        key = _bytes(contexts, number)
        name_stop = METRIC_KEY_HEADER + int.from_bytes(key[3:7], "little")
        unit_stop = name_stop + int.from_bytes(key[7:METRIC_KEY_HEADER], "little")
        start = int(contexts.entries["offset"][number] + contexts.entries["length"][number])
        kind = PointType(key[0])
        part, schema_stop = "", len(key)
        if kind is PointType.SUMMARY:
            part = _PARTS.get(key[1], "")
            if not part:
                schema_stop -= QUANTILE_BYTES
                part = number_text(struct.unpack("<d", key[schema_stop:])[0]).strip('"')
        description = contexts.arena[start : start + int(contexts.entries["extra"][number])].tobytes()
        return MetricContext(
            resource=self._resource(contexts, int(contexts.entries["parent"][scope_number])),
            scope_name=scope.name,
            scope_version=scope.version,
            scope_attributes=canonical_attributes(scope.attributes),
            name=key[METRIC_KEY_HEADER:name_stop].decode(),
            unit=key[name_stop:unit_stop].decode(),
            schema_url=key[unit_stop:schema_stop].decode(),
            type=kind,
            temporality=Temporality.UNSPECIFIED if part else Temporality(key[1]),
            monotonic=bool(key[2]),
            description=description.decode(),
            part=part,
        )


def _attributes(kind: PointType, point: bytes) -> Attributes:
    return canonical_attributes(POINTS[kind].FromString(point).attributes)


def _bytes(store: Store, number: int) -> bytes:
    start = int(store.entries["offset"][number])
    return store.arena[start : start + int(store.entries["length"][number])].tobytes()
