"""From what a series is on the wire to what it is on `/metrics`.

The catalogue's names, kinds and help win over what a producer claims; everything else follows
opentelemetry-specification, compatibility/prometheus_and_openmetrics.md. Delta temporality is refused, and counted:
totals kept in memory alone would be counted twice after a restart, and a wrong number is worse than none.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kernelcast.bridge.columns import LABELS_TOO_LONG, TEMPORALITY, TYPE_CONFLICT, UNNAMED, WIRE_ONLY
from kernelcast.bridge.families import HISTOGRAM_SUFFIXES
from kernelcast.columnar import Attributes, PointType, SeriesIdentity, Temporality
from kernelcast.wire.catalogue import BY_OTLP_NAME, BY_PROMETHEUS_NAME, CATALOGUE, Kind
from kernelcast.wire.catalogue import translate as prometheus_name

LONGEST_LABELS_BYTES: Final = 8 * 1024
"""Longer than any series of ours by an order of magnitude; a page of such series would be no use to anybody."""

_PARTS_OF_OURS: Final = frozenset(
    f"{row.prometheus_name}{suffix}"
    for row in CATALOGUE
    if row.kind is Kind.HISTOGRAM and row.exposed
    for suffix in HISTOGRAM_SUFFIXES
)
"""Sample names of the catalogue's histograms: a stranger that came first would keep the whole histogram out."""

_HISTOGRAMS: Final = (PointType.HISTOGRAM, PointType.EXPONENTIAL_HISTOGRAM)
_NAMEABLE: Final = re.compile(r"[a-zA-Z0-9]")
_NOT_A_LABEL: Final = re.compile(r"[^a-zA-Z0-9_]")
_ESCAPED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a series goes.

    Attributes:
        name: Its family.
        kind: The family's kind.
        help: The family's help, should it be new.
        labels: `a="b",c="d"`, escaped, without braces.
        cumulative: Whether its start time counts.
        writer: Hash of the resource and scope that write it.
    """

    name: str
    kind: Kind
    help: str
    labels: bytes
    cumulative: bool
    writer: int


def place(identity: SeriesIdentity) -> Placement | int:
    """Where a series goes, or the reason (a code of `columns`) why it is not stored."""
    family = _family(identity.name, identity.unit, identity.type, identity.monotonic)
    if isinstance(family, int):
        return family
    name, kind, catalogued_help = family
    if identity.type is not PointType.GAUGE and identity.temporality is not Temporality.CUMULATIVE:
        return TEMPORALITY
    labels = _render(identity, kind).encode()
    if len(labels) > LONGEST_LABELS_BYTES:
        return LABELS_TOO_LONG
    return Placement(
        name,
        kind,
        catalogued_help or identity.description,
        labels,
        identity.type is not PointType.GAUGE,
        hash((identity.resource, identity.scope_name, identity.scope_version)),
    )


@lru_cache(maxsize=10_000)
def _family(name: str, unit: str, claimed: PointType, monotonic: bool) -> tuple[str, Kind, str] | int:  # noqa: FBT001  cached
    kind = _claimed_kind(claimed, monotonic=monotonic)
    row = BY_OTLP_NAME.get(name)
    if row is None:
        if not _NAMEABLE.search(name):
            return UNNAMED
        translated = prometheus_name(name, unit, kind)
        row = BY_PROMETHEUS_NAME.get(translated)
        if row is None:
            names = (
                [f"{translated}{suffix}" for suffix in HISTOGRAM_SUFFIXES] if kind is Kind.HISTOGRAM else [translated]
            )
            return TYPE_CONFLICT if _PARTS_OF_OURS.intersection(names) else (translated, kind, "")
    if not row.exposed:
        return WIRE_ONLY
    if (row.kind is Kind.HISTOGRAM) != (kind is Kind.HISTOGRAM):
        return TYPE_CONFLICT
    return row.prometheus_name, row.kind, row.help


def _claimed_kind(claimed: PointType, *, monotonic: bool) -> Kind:
    if claimed in _HISTOGRAMS:
        return Kind.HISTOGRAM
    return Kind.COUNTER if claimed is PointType.SUM and monotonic else Kind.GAUGE


def _render(identity: SeriesIdentity, kind: Kind) -> str:
    target = _target(identity.resource)
    values: dict[str, str] = {}
    for key, value in identity.attributes:
        if value:
            name = label_name(key)
            if name in target or (name == "le" and kind is Kind.HISTOGRAM):
                name = f"exported_{name}"
            values[name] = f"{values[name]};{value}" if name in values else value
    values.update(target)
    return ",".join([f'{name}="{values[name].translate(_ESCAPED)}"' for name in sorted(values)])


@lru_cache(maxsize=4096)
def _target(resource: Attributes) -> dict[str, str]:
    known = dict(resource)
    job = "/".join(part for part in (known.get("service.namespace"), known.get("service.name")) if part)
    named = {"job": job, "instance": known.get("service.instance.id", "")}
    return {name: value for name, value in named.items() if value}


@lru_cache(maxsize=10_000)
def label_name(key: str) -> str:
    """A legal label name; `__name__` and its like would change which series a line is, so they get a prefix."""
    name = _NOT_A_LABEL.sub("_", key) or "_"
    if name[0].isdigit():
        return f"key_{name}"
    return f"key{name}" if name.startswith("__") else name
