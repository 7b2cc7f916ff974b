"""The identity of a series: everything that distinguishes two series, and nothing that may change in the life of one.

The decoder makes identities; the bridge and the predictor name series by them.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Encoders use these classes, too, and import no numpy.
    from kernelcast.columnar.columns import Int32Array

Attributes = tuple[tuple[str, str], ...]
"""Pairs of key and value, sorted by key, each key once."""


class PointType(IntEnum):
    """The OTLP type of a point's metric; the value is the field's number in the message `Metric`."""

    GAUGE = 5
    SUM = 7
    HISTOGRAM = 9
    EXPONENTIAL_HISTOGRAM = 10
    SUMMARY = 11

    __hash__ = int.__hash__  # an enum's own is a function in Python, called for each look-up of an identity


class Temporality(IntEnum):
    """OTLP's `AggregationTemporality`; gauges are UNSPECIFIED."""

    UNSPECIFIED = 0
    DELTA = 1
    CUMULATIVE = 2

    __hash__ = int.__hash__


@dataclass(frozen=True, slots=True)
class SeriesIdentity:
    """A series in canonical form: equal however a producer ordered its attributes; hashable.

    Values that are not strings are text, as OpenTelemetry's Prometheus translation renders them: integers, doubles and
    booleans plainly, bytes in base64, arrays and maps as JSON. Of a key that occurs twice, the last value counts.

    Attributes:
        resource: The resource's attributes.
        scope_name: The instrumentation scope's name.
        scope_version: Its version.
        name: The metric's OTLP name.
        unit: The metric's UCUM unit.
        type: The kind of metric.
        temporality: DELTA or CUMULATIVE for sums and histograms.
        monotonic: Whether a sum only rises; False for other kinds.
        attributes: The point's own attributes.
        scope_attributes: The scope's attributes; scopes that differ only in them are different.
        part: Part of a summary: `sum`, `count`, or a quantile such as `0.99`; its points are numbers. Else empty.
        schema_url: URL of the conventions that the scope follows.
        description: The metric's help as first seen; not part of the identity.
    """

    resource: Attributes
    scope_name: str
    scope_version: str
    name: str
    unit: str
    type: PointType
    temporality: Temporality
    monotonic: bool
    attributes: Attributes
    scope_attributes: Attributes = ()
    schema_url: str = ""
    part: str = ""
    description: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class MetricIdentity:
    """The part of a series' identity that comes from its metric; see `SeriesIdentity`."""

    name: str
    unit: str
    type: PointType
    temporality: Temporality
    monotonic: bool
    schema_url: str
    part: str
    description: str


@dataclass(frozen=True, slots=True)
class ScopeIdentity:
    """The part of a series' identity that comes from its scope and resource; see `SeriesIdentity`."""

    resource: Attributes
    name: str
    version: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class SharedIdentities:
    """Identities of n series, with each shared part stored once.

    Attributes:
        metrics: Their metrics.
        metric: Shape (n,), int32, index of each series' metric.
        scopes: Their scopes, each with its resource. Two may be equal that were written differently.
        scope: Shape (n,), int32.
        attributes: Their own attributes. Two may be equal that were written differently.
        attribute_set: Shape (n,), int32.
    """

    metrics: tuple[MetricIdentity, ...]
    metric: "Int32Array"
    scopes: tuple[ScopeIdentity, ...]
    scope: "Int32Array"
    attributes: tuple[Attributes, ...]
    attribute_set: "Int32Array"
