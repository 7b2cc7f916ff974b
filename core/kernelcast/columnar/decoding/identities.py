"""Converts numbers of the decoder's series to identities: resource, scope, metric and attributes, as Python objects.

The decoder has two stores of entries (`walk.layout.Store`), series and contexts. The parent of a series is a metric,
the metric's parent is a scope, and the scope's is a resource; these three are entries of contexts. The bytes of a
resource or scope are its protobuf message as received; those of a metric are a key (`METRIC_KEY_HEADER` in
`walk.lookup` shows its layout); those of a series' attributes are the fields of a point that hold them.
"""

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
from kernelcast.columnar.distinct import distinct_numbers
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

MAX_CACHED_ATTRIBUTES: Final = 4096
"""Parsed sets of attributes in the cache: a producer sends the same few with each of its metrics."""
MAX_CACHED_METRICS: Final = 4096
"""Parsed metrics in the cache: the producers of a fleet send the same ones."""

_POINT_MESSAGES: Final[dict[int, Any]] = {
    1: metrics_pb2.ExponentialHistogramDataPoint,
    7: metrics_pb2.NumberDataPoint,  # a SummaryDataPoint has its attributes in field 7, too
    9: metrics_pb2.HistogramDataPoint,
}
"""Messages of points, by the number of the field that holds their attributes."""
_PARTS: Final = {SUM_PART: "sum", COUNT_PART: "count"}


def canonical_attributes(attributes: Iterable[KeyValue]) -> Attributes:
    """Attributes as text, sorted by key; the last value of a key that occurs twice, which OTLP forbids."""
    # Most values are non-empty strings: reading the field is faster than asking which kind of value is set.
    values = {
        sys.intern(attribute.key): attribute.value.string_value or as_text(attribute.value) for attribute in attributes
    }
    return tuple(sorted(values.items()))


class Identities:
    """Reads identities from the decoder's stores, and caches the parts that series share.

    It belongs to one `Decoder`, and only the thread that decodes uses it. Scopes and resources are cached by the number
    of their entry. A number may be reused; then the new entry has another stamp, which shows that the cache is stale.
    """

    def __init__(self) -> None:
        self._parsed_attributes = lru_cache(MAX_CACHED_ATTRIBUTES)(_parse_attributes)
        self._parsed_metric = lru_cache(MAX_CACHED_METRICS)(_parse_metric)
        self._scopes: dict[int, tuple[int, ScopeIdentity]] = {}
        """Stamp and scope, by entry."""
        self._resources: dict[int, tuple[int, Attributes]] = {}
        """Stamp and attributes of a resource, by entry."""

    def identity(self, state: WalkState, number: int) -> SeriesIdentity:
        """Return the identity of the series with a number.

        Raises:
            KeyError: The number is not in use.
        """
        series, contexts = state.series, state.contexts
        if not 0 <= number < series.counters[USED] or series.entries["parent"][number] == UNUSED:
            raise KeyError(number)
        metric_entry = int(series.entries["parent"][number])
        metric = self._parsed_metric(*_described_key(contexts, metric_entry))
        scope = self._scope(contexts, int(contexts.entries["parent"][metric_entry]))
        return SeriesIdentity(
            resource=scope.resource,
            scope_name=scope.name,
            scope_version=scope.version,
            name=metric.name,
            unit=metric.unit,
            type=metric.type,
            temporality=metric.temporality,
            monotonic=metric.monotonic,
            attributes=self._parsed_attributes(_entry_bytes(contexts, int(series.entries["text"][number]))),
            scope_attributes=scope.attributes,
            schema_url=metric.schema_url,
            part=metric.part,
            description=metric.description,
        )

    def shared_identities(self, state: WalkState, numbers: Int32Array) -> SharedIdentities:
        """Return the identities of many series; `numbers` has shape (k,).

        Raises:
            KeyError: A number is not in use.
        """
        series, contexts = state.series, state.contexts
        unknown = (numbers < 0) | (numbers >= series.counters[USED])
        entries = series.entries[np.where(unknown, 0, numbers)]  # entry 0 for unknown numbers, only to keep the shape
        unknown |= entries["parent"] == UNUSED
        if unknown.any():
            raise KeyError(int(numbers[unknown][0]))
        # The distinct entries, and for each series (or metric) the index of its own among them.
        metrics, metric_of_series = distinct_numbers(entries["parent"])
        scopes, scope_of_metric = distinct_numbers(contexts.entries["parent"][metrics])
        attributes, attributes_of_series = distinct_numbers(entries["text"])
        # Metrics of different scopes have different entries, but often the same key: such are one metric here.
        group_of_metric, first_of_group = grouped(contexts, metrics.astype(np.int32))
        return SharedIdentities(
            metrics=tuple(
                self._parsed_metric(*_described_key(contexts, entry)) for entry in metrics[first_of_group].tolist()
            ),
            metric=group_of_metric[metric_of_series],
            scopes=tuple(self._scope(contexts, entry) for entry in scopes.tolist()),
            scope=scope_of_metric.astype(np.int32)[metric_of_series],
            attributes=tuple(self._parsed_attributes(_entry_bytes(contexts, entry)) for entry in attributes.tolist()),
            attribute_set=attributes_of_series.astype(np.int32),
        )

    def _scope(self, contexts: Store, number: int) -> ScopeIdentity:
        # An entry is given up only with all below it: a scope with the same stamp has the same resource.
        stamp = int(contexts.entries["stamp"][number])
        known = self._scopes.get(number)
        if known is None or known[0] != stamp:
            scope = InstrumentationScope.FromString(_entry_bytes(contexts, number))
            resource = self._resource(contexts, int(contexts.entries["parent"][number]))
            attributes = canonical_attributes(scope.attributes)
            known = (stamp, ScopeIdentity(resource, scope.name, scope.version, attributes))
            self._scopes[number] = known
        return known[1]

    def _resource(self, contexts: Store, number: int) -> Attributes:
        stamp = int(contexts.entries["stamp"][number])
        known = self._resources.get(number)
        if known is None or known[0] != stamp:
            resource = Resource.FromString(_entry_bytes(contexts, number))
            known = (stamp, canonical_attributes(resource.attributes))
            self._resources[number] = known
        return known[1]


def _described_key(contexts: Store, metric: int) -> tuple[bytes, int]:
    """A metric's key followed by its description, and the key's length; `extra` is the description's."""
    entry = contexts.entries[metric]
    start, length = int(entry["offset"]), int(entry["length"])
    return contexts.arena[start : start + length + int(entry["extra"])].tobytes(), length


def _parse_metric(described: bytes, length: int) -> MetricIdentity:
    """Read a key; `walk.lookup.METRIC_KEY_HEADER` shows its layout.

    Byte 1 of a summary's key is the part that the series is: its sum, its count, or a quantile, which ends the key.
    """
    key = described[:length]
    name_stop = METRIC_KEY_HEADER + int.from_bytes(key[3:7], "little")
    unit_stop = name_stop + int.from_bytes(key[7:METRIC_KEY_HEADER], "little")
    kind = PointType(key[0])
    part, schema_stop = "", len(key)
    if kind is PointType.SUMMARY:
        part = _PARTS.get(key[1], "")
        if not part:
            schema_stop -= QUANTILE_BYTES
            part = number_text(struct.unpack("<d", key[schema_stop:])[0]).strip('"')  # NaN has quotes, as in JSON
    return MetricIdentity(
        name=key[METRIC_KEY_HEADER:name_stop].decode(),
        unit=key[name_stop:unit_stop].decode(),
        type=kind,
        temporality=Temporality.UNSPECIFIED if kind is PointType.SUMMARY else Temporality(key[1]),
        monotonic=bool(key[2]),
        schema_url=key[unit_stop:schema_stop].decode(),
        part=part,
        description=described[length:].decode(),
    )


def _parse_attributes(point: bytes) -> Attributes:
    """Read the attributes' fields of a point, which are a message of the point's type with nothing else in it.

    All have the same field number, in the upper bits of the first byte. It differs between the types of points.
    """
    if not point:
        return ()
    return canonical_attributes(_POINT_MESSAGES[point[0] >> 3].FromString(point).attributes)


def _entry_bytes(store: Store, number: int) -> bytes:
    start = int(store.entries["offset"][number])
    return store.arena[start : start + int(store.entries["length"][number])].tobytes()
