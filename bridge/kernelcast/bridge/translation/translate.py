"""Translates a series' wire identity to its family and labels on `/metrics`.

The catalogue's names, kinds and help win over a producer's claims; everything else follows
opentelemetry-specification, compatibility/prometheus_and_openmetrics.md. A sum or histogram of differences, or without
a temporality, is refused.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from kernelcast.bridge.tables.columns import DELTA, LABELS_TOO_LONG, TEMPORALITY, TYPE_CONFLICT, UNNAMED, WIRE_ONLY
from kernelcast.bridge.tables.families import HISTOGRAM_SUFFIXES, Heading
from kernelcast.bridge.tables.placement import Placement, SeriesOrigin
from kernelcast.bridge.tables.schemas import bound_text
from kernelcast.bridge.translation.attributes import (
    LabelRenderer,
    host_of,
    joined,
    producer_labels,
    producer_of,
    target_of,
)
from kernelcast.bridge.translation.settings import WITH_SUFFIXES, TranslationSettings
from kernelcast.columnar import Attributes, MetricIdentity, PointType, SeriesIdentity, Temporality
from kernelcast.wire.catalogue import (
    BY_OTHER_NAME,
    BY_OTLP_NAME,
    BY_PROMETHEUS_NAME,
    CATALOGUE,
    Kind,
    Metric,
    unit_words,
)
from kernelcast.wire.catalogue import translate as prometheus_name

_CATALOGUE_HISTOGRAM_NAMES: Final = frozenset(
    f"{row.prometheus_name}{suffix}"
    for row in CATALOGUE
    if row.kind is Kind.HISTOGRAM and row.exposed
    for suffix in HISTOGRAM_SUFFIXES
)
"""Sample names of the catalogue's histograms; another metric with such a name would block the whole histogram."""

_WITH_TEMPORALITY: Final = (PointType.SUM, PointType.HISTOGRAM, PointType.EXPONENTIAL_HISTOGRAM)
_PARTS: Final = {"sum": "_sum", "count": "_count"}
_HISTOGRAMS: Final = (PointType.HISTOGRAM, PointType.EXPONENTIAL_HISTOGRAM)
_OF_THE_SERIES: Final = {Kind.HISTOGRAM: ("le",), Kind.SUMMARY: ("quantile",)}
"""Labels that a kind's samples have themselves."""


Scope = tuple[Attributes, Attributes]
"""The scope's names that become labels, and its attributes."""


class LabelStyle(NamedTuple):
    """Style of the labels of a metric's series.

    Attributes:
        catalogued: Whether the family is the catalogue's.
        own: Names of labels that its kind writes itself.
        quantile: The label that a summary's quantile has, else empty.
    """

    catalogued: bool
    own: tuple[str, ...]
    quantile: bytes


class NamedFamily(NamedTuple):
    """The family of a metric's series, and the style of their labels."""

    heading: Heading
    style: LabelStyle


def scope_of(names: tuple[str, str, str], attributes: Attributes) -> Scope:
    """Make a scope from its name, version and schema URL, and its attributes."""
    name, version, schema_url = names
    labels = (("otel_scope_name", name), ("otel_scope_schema_url", schema_url), ("otel_scope_version", version))
    return labels, attributes


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    kind: Kind
    help: str
    unit: str
    catalogued: bool

    @classmethod
    def of_row(cls, row: Metric) -> "_Family":
        unit = _unit_in(row.prometheus_name, row.unit, row.kind)
        return cls(row.prometheus_name, row.kind, row.help, unit, catalogued=True)


class Translator:
    """Places series by the settings; any thread may use it."""

    def __init__(self, settings: TranslationSettings | None = None) -> None:
        """Use these settings, or the defaults."""
        settings = settings or TranslationSettings()
        self._suffixes = settings.strategy == WITH_SUFFIXES
        self._scope_labels = settings.scope_labels
        self._target_info = settings.target_info
        self._promoted = settings.promote_resource_attributes
        self._family = lru_cache(maxsize=10_000)(self._find_family)
        self.named_together = lru_cache(maxsize=10_000)(self.named)
        self.renderer = lru_cache(maxsize=4096)(self._make_renderer)
        self._target = lru_cache(maxsize=4096)(target_of)

    def place(self, identity: SeriesIdentity) -> Placement | int:
        """Return the placement of a series, or the reason (a code of `columns`) why it is not stored."""
        named = self.named(identity)
        if isinstance(named, int):
            return named
        names = (identity.scope_name, identity.scope_version, identity.schema_url)
        scope = scope_of(names, identity.scope_attributes)
        labels = self.renderer(identity.resource, scope, named.style)(identity.attributes)
        if labels is None:
            return LABELS_TOO_LONG
        name, kind, text, unit, part_of, cumulative, source = named.heading
        writer, producer, target, host = self.origin(identity.resource, scope, named.style)
        return Placement(name, kind, text, labels, cumulative, writer, unit, producer, target, part_of, host, source)

    def named(self, metric: MetricIdentity | SeriesIdentity) -> NamedFamily | int:
        """Return the family of a metric's series, or the reason why they are not stored."""
        family = self._family(metric.name, metric.unit, metric.type, metric.monotonic)
        if isinstance(family, int):
            return family
        if metric.type in _WITH_TEMPORALITY and metric.temporality is not Temporality.CUMULATIVE:
            return DELTA if metric.temporality is Temporality.DELTA else TEMPORALITY
        cumulative = metric.type is not PointType.GAUGE
        text = family.help or metric.description
        heading = Heading(family.name, family.kind, text, family.unit, "", cumulative, metric.name)
        quantile = b""
        suffix = _PARTS.get(metric.part)
        if suffix:
            heading = heading._replace(name=family.name + suffix, unit="", part_of=family.name)
        elif metric.part:
            quantile = f'quantile="{bound_text(float(metric.part))}"'.encode()
        return NamedFamily(heading, LabelStyle(family.catalogued, _OF_THE_SERIES.get(family.kind, ()), quantile))

    def origin(self, resource: Attributes, scope: Scope, style: LabelStyle) -> SeriesOrigin:
        """Return writer and producer of series with a resource and scope."""
        target = self._target(resource) if self._target_info and not style.catalogued else ()
        return SeriesOrigin((resource, scope, style.catalogued), producer_of(resource), target, host_of(resource))

    def _find_family(self, name: str, unit: str, point_type: PointType, monotonic: bool) -> _Family | int:  # noqa: FBT001  cached
        kind = _kind_of(point_type, monotonic=monotonic)
        row = BY_OTLP_NAME.get(name) or BY_OTHER_NAME.get(name)
        if row is None:
            if point_type is PointType.SUM and unit.strip() == "1":
                unit = ""  # a sum that rises and falls counts things; only a gauge can be a ratio
            translated = prometheus_name(name, unit, kind, suffixes=self._suffixes)
            if not translated:
                return UNNAMED
            row = BY_PROMETHEUS_NAME.get(translated)
            if row is None:
                parts = {f"{translated}{suffix}" for suffix in HISTOGRAM_SUFFIXES if kind is Kind.HISTOGRAM}
                if _CATALOGUE_HISTOGRAM_NAMES & (parts | {translated}):
                    return TYPE_CONFLICT
                return _Family(translated, kind, "", _unit_in(translated, unit, kind), catalogued=False)
        if not row.exposed:
            return WIRE_ONLY
        if kind is Kind.SUMMARY or (row.kind is Kind.HISTOGRAM) != (kind is Kind.HISTOGRAM):
            return TYPE_CONFLICT
        return _Family.of_row(row)

    def _make_renderer(self, resource: Attributes, scope: Scope, style: LabelStyle) -> LabelRenderer:
        """Return what renders the labels of series with a resource, a scope and a style."""
        fixed = producer_labels(producer_of(resource))
        if self._scope_labels and not style.catalogued:
            names, scope_attributes = scope
            fixed |= joined(scope_attributes, prefix="otel_scope_")
            fixed |= joined(names)
        if self._promoted == "all":
            promoted = joined(() if style.catalogued else resource)
        else:
            promoted = joined((key, value) for key, value in resource if key in self._promoted)
        return LabelRenderer(fixed, promoted, style.own, style.quantile)


def _kind_of(point_type: PointType, *, monotonic: bool) -> Kind:
    if point_type in _HISTOGRAMS:
        return Kind.HISTOGRAM
    if point_type is PointType.SUMMARY:
        return Kind.SUMMARY
    return Kind.COUNTER if point_type is PointType.SUM and monotonic else Kind.GAUGE


def _unit_in(name: str, unit: str, kind: Kind) -> str:
    """Return the unit if the name ends with it, as OpenMetrics requires; else an empty string."""
    word = unit_words(unit, kind)
    return word if word and name.removesuffix("_total").endswith(f"_{word}") else ""
