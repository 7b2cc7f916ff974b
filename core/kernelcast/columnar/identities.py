"""What a series number stands for, in canonical form."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from kernelcast.columnar.layout import UNUSED, USED, State, Store
from kernelcast.columnar.lookup import METRIC_KEY_HEADER
from kernelcast.columnar.rendering import as_text
from kernelcast.columnar.series import Attributes, PointType, SeriesIdentity, Temporality

POINTS: Final[dict[PointType, Any]] = {
    PointType.GAUGE: metrics_pb2.NumberDataPoint,
    PointType.SUM: metrics_pb2.NumberDataPoint,
    PointType.HISTOGRAM: metrics_pb2.HistogramDataPoint,
    PointType.EXPONENTIAL_HISTOGRAM: metrics_pb2.ExponentialHistogramDataPoint,
}


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
    name: str
    unit: str
    type: PointType
    temporality: Temporality
    monotonic: bool
    description: str


class Identities:
    """Reads identities out of the decoder's stores; what many series share is read once."""

    def __init__(self) -> None:
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
        point = POINTS[metric.type].FromString(_bytes(series, number))
        return SeriesIdentity(
            resource=metric.resource,
            scope_name=metric.scope_name,
            scope_version=metric.scope_version,
            name=metric.name,
            unit=metric.unit,
            type=metric.type,
            temporality=metric.temporality,
            monotonic=metric.monotonic,
            attributes=canonical_attributes(point.attributes),
            scope_attributes=metric.scope_attributes,
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
        name_stop = METRIC_KEY_HEADER + int.from_bytes(key[3:METRIC_KEY_HEADER], "little")
        start = int(contexts.entries["offset"][number] + contexts.entries["length"][number])
        description = contexts.arena[start : start + int(contexts.entries["extra"][number])].tobytes()
        return MetricContext(
            resource=self._resource(contexts, int(contexts.entries["parent"][scope_number])),
            scope_name=scope.name,
            scope_version=scope.version,
            scope_attributes=canonical_attributes(scope.attributes),
            name=key[METRIC_KEY_HEADER:name_stop].decode(),
            unit=key[name_stop:].decode(),
            type=PointType(key[0]),
            temporality=Temporality(key[1]),
            monotonic=bool(key[2]),
            description=description.decode(),
        )


def _bytes(store: Store, number: int) -> bytes:
    start = int(store.entries["offset"][number])
    return store.arena[start : start + int(store.entries["length"][number])].tobytes()
