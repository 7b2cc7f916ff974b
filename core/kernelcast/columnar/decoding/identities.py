"""Series identities in canonical form, made from the decoder's arrays."""

import struct
import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import numpy as np
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from kernelcast.columnar.columns import Int32Array
from kernelcast.columnar.decoding.rendering import as_text, number_text
from kernelcast.columnar.decoding.tables import grouped
from kernelcast.columnar.series import (
    Attributes,
    MetricIdentity,
    PointType,
    ScopeIdentity,
    SeriesIdentity,
    SharedIdentities,
    Temporality,
)
from kernelcast.columnar.walk.layout import UNUSED, USED, Store, WalkState
from kernelcast.columnar.walk.lookup import COUNT_PART, METRIC_KEY_HEADER, QUANTILE_BYTES, SUM_PART

LABEL_SETS_KEPT: Final = 4096
"""A producer sends the same few attributes with each of its metrics: they are read once, and shared."""
METRICS_KEPT: Final = 4096
"""A fleet's producers send the same metrics: they are read once, and shared."""

POINTS: Final[dict[int, Any]] = {
    1: metrics_pb2.ExponentialHistogramDataPoint,
    7: metrics_pb2.NumberDataPoint,  # where a SummaryDataPoint has them, too
    9: metrics_pb2.HistogramDataPoint,
}
"""Point messages by the field number of their attributes."""
_PARTS: Final = {SUM_PART: "sum", COUNT_PART: "count"}


def canonical_attributes(attributes: Iterable[KeyValue]) -> Attributes:
    """Attributes sorted by key; of a key that stands twice, the last value (OTLP forbids it, producers do it)."""
    # Most values are strings: then one question less to protobuf for each.
    values = {
        sys.intern(attribute.key): attribute.value.string_value or as_text(attribute.value) for attribute in attributes
    }
    return tuple(sorted(values.items()))


class Identities:
    """Reads identities out of the decoder's stores; what many series share is read once."""

    def __init__(self) -> None:
        self._attributes = lru_cache(LABEL_SETS_KEPT)(_attributes)
        self._metric = lru_cache(METRICS_KEPT)(_metric)
        self._scopes: dict[int, tuple[int, ScopeIdentity]] = {}
        self._resources: dict[int, tuple[int, Attributes]] = {}

    def of(self, state: WalkState, number: int) -> SeriesIdentity:
        """Return the identity of a series.

        Raises:
            KeyError: The number is not in use.
        """
        series, contexts = state.series, state.contexts
        if not 0 <= number < series.counters[USED] or series.entries["parent"][number] == UNUSED:
            raise KeyError(number)
        parent = int(series.entries["parent"][number])
        metric = self._metric(*_key(contexts, parent))
        scope = self._scope(contexts, int(contexts.entries["parent"][parent]))
        return SeriesIdentity(
            resource=scope.resource,
            scope_name=scope.name,
            scope_version=scope.version,
            name=metric.name,
            unit=metric.unit,
            type=metric.type,
            temporality=metric.temporality,
            monotonic=metric.monotonic,
            attributes=self._attributes(_bytes(contexts, int(series.entries["text"][number]))),
            scope_attributes=scope.attributes,
            schema_url=metric.schema_url,
            part=metric.part,
            description=metric.description,
        )

    def together(self, state: WalkState, numbers: Int32Array) -> SharedIdentities:
        """Return the identities of many series; `numbers` has shape (k,).

        Raises:
            KeyError: A number is not in use.
        """
        series, contexts = state.series, state.contexts
        wrong = (numbers < 0) | (numbers >= series.counters[USED])
        entries = series.entries[np.where(wrong, 0, numbers)]
        wrong |= entries["parent"] == UNUSED
        if wrong.any():
            raise KeyError(int(numbers[wrong][0]))
        parents, parent = np.unique(entries["parent"], return_inverse=True)
        scopes, scope = np.unique(contexts.entries["parent"][parents], return_inverse=True)
        metric, first = grouped(contexts, parents)
        texts, text = np.unique(entries["text"], return_inverse=True)
        return SharedIdentities(
            metrics=tuple(self._metric(*_key(contexts, one)) for one in parents[first].tolist()),
            metric=metric[parent],
            scopes=tuple(self._scope(contexts, one) for one in scopes.tolist()),
            scope=scope.astype(np.int32)[parent],
            attributes=tuple(self._attributes(_bytes(contexts, one)) for one in texts.tolist()),
            attribute_set=text.astype(np.int32),
        )

    def _scope(self, contexts: Store, number: int) -> ScopeIdentity:
        # A context's number may have been reused for another one; its stamp is different then.
        stamp = int(contexts.entries["stamp"][number])
        known = self._scopes.get(number)
        if known is None or known[0] != stamp:
            scope = InstrumentationScope.FromString(_bytes(contexts, number))
            resource = self._resource(contexts, int(contexts.entries["parent"][number]))
            attributes = canonical_attributes(scope.attributes)
            known = (stamp, ScopeIdentity(resource, scope.name, scope.version, attributes))
            self._scopes[number] = known
        return known[1]

    def _resource(self, contexts: Store, number: int) -> Attributes:
        stamp = int(contexts.entries["stamp"][number])
        known = self._resources.get(number)
        if known is None or known[0] != stamp:
            resource = Resource.FromString(_bytes(contexts, number))
            known = (stamp, canonical_attributes(resource.attributes))
            self._resources[number] = known
        return known[1]


def _key(contexts: Store, metric: int) -> tuple[bytes, int]:
    """A metric's key with its description, and how long the key is."""
    entry = contexts.entries[metric]
    start, length = int(entry["offset"]), int(entry["length"])
    return contexts.arena[start : start + length + int(entry["extra"])].tobytes(), length


def _metric(described: bytes, length: int) -> MetricIdentity:
    key = described[:length]
    name_stop = METRIC_KEY_HEADER + int.from_bytes(key[3:7], "little")
    unit_stop = name_stop + int.from_bytes(key[7:METRIC_KEY_HEADER], "little")
    kind = PointType(key[0])
    part, schema_stop = "", len(key)
    if kind is PointType.SUMMARY:
        part = _PARTS.get(key[1], "")
        if not part:
            schema_stop -= QUANTILE_BYTES
            part = number_text(struct.unpack("<d", key[schema_stop:])[0]).strip('"')
    return MetricIdentity(
        name=key[METRIC_KEY_HEADER:name_stop].decode(),
        unit=key[name_stop:unit_stop].decode(),
        type=kind,
        temporality=Temporality.UNSPECIFIED if part else Temporality(key[1]),
        monotonic=bool(key[2]),
        schema_url=key[unit_stop:schema_stop].decode(),
        part=part,
        description=described[length:].decode(),
    )


def _attributes(point: bytes) -> Attributes:
    return canonical_attributes(POINTS[point[0] >> 3].FromString(point).attributes) if point else ()


def _bytes(store: Store, number: int) -> bytes:
    start = int(store.entries["offset"][number])
    return store.arena[start : start + int(store.entries["length"][number])].tobytes()
