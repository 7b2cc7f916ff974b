"""Headers of families in each format, and the names of their samples; `layout` makes them once for each layout.

OpenMetrics has stricter rules for names than text: the family of a counter has no suffix `_total`, that of an info no
`_info`, and no two families may share a name. A counter without that suffix (such as DCGM's), or whose shorter name is
used, has type `unknown` there: Prometheus then sees the same series, under the same name, as in every other format.
client_golang does the same (prometheus/common, expfmt/openmetrics_create.go).

A counter `x_total` and a histogram `x` also own the name `x_created`. If another family has that name, the counter has
type `unknown`, and the histogram is written as three families of type `unknown`: its buckets, sums and counts.

A summary is stored as three families: its quantiles, sums and counts. Text has one header for all of them, above the
first one on the page: a summary may have no quantiles. OpenMetrics and protobuf require all samples with the same
labels to be together, so each of the three has type `unknown` there. The series are the same, and no query uses the
type.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from kernelcast.bridge.layouts.page import PackedTexts
from kernelcast.bridge.tables.columns import UInt8Array
from kernelcast.bridge.tables.families import EXPOSED_TYPES, HISTOGRAM_SUFFIXES, Family
from kernelcast.columnar.encoding.fields import delimited
from kernelcast.wire.catalogue import Kind

GAUGE_KIND: Final = 0
COUNTER_KIND: Final = 1
UNTYPED_KIND: Final = 2
HISTOGRAM_KIND: Final = 3
BARE_COUNTER_KIND: Final = 4
"""A counter that has no type in a format, and so no exemplars."""
SPLIT_HISTOGRAM_KIND: Final = 5
"""A histogram that OpenMetrics writes as three families: buckets, sums and counts; see `formats.openmetrics`."""

_KINDS: Final = {
    Kind.GAUGE: GAUGE_KIND,
    Kind.INFO: GAUGE_KIND,
    Kind.COUNTER: COUNTER_KIND,
    Kind.HISTOGRAM: HISTOGRAM_KIND,
    Kind.SUMMARY: UNTYPED_KIND,
    Kind.UNKNOWN: UNTYPED_KIND,
}
_PROTOBUF_TYPES: Final = {GAUGE_KIND: 1, COUNTER_KIND: 0, UNTYPED_KIND: 3, HISTOGRAM_KIND: 4}
"""io.prometheus.client.MetricType."""
_SAMPLE_NAME: Final = re.compile(rb"[^{ ]+")

NameTaken = Callable[[str], bool]
"""Whether a sample on a page may have a name: `Families.takes`."""


class Headers(NamedTuple):
    """Headers and names of all families, as in `PageLayout`."""

    headers: PackedTexts
    names: PackedTexts
    created: PackedTexts
    kinds: UInt8Array


def text_headers(families: Sequence[Family]) -> Headers:
    """Return HELP and TYPE for text 0.0.4."""
    return Headers(
        PackedTexts.of(
            _text_header(family, before) for before, family in zip([None, *families], families, strict=False)
        ),
        PackedTexts.of(family.name.encode() for family in families),
        PackedTexts.of(b"" for _ in families),
        _kinds(families),
    )


def _text_header(family: Family, before: Family | None) -> bytes:
    """Return HELP and TYPE of a family; of its summary if it is the first of the summary's families, else nothing."""
    name = family.part_of or family.name
    if family.part_of and before is not None and name in (before.name, before.part_of):
        return b""
    text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {name} {text}\n# TYPE {name} {EXPOSED_TYPES[family.kind]}\n".encode()


def openmetrics_headers(families: Sequence[Family], taken: NameTaken, *, created: bool) -> Headers:
    """Return HELP, TYPE and UNIT for OpenMetrics 1.0.

    Args:
        families: The families, in the page's order.
        taken: Whether a sample on a page may have this name.
        created: Whether `_created` is written.
    """
    kinds = _kinds(families)
    headers, created_names = [], []
    for i, family in enumerate(families):
        name, kind = _openmetrics_family(family, taken)
        if family.kind is Kind.COUNTER and kind != "counter":
            kinds[i] = BARE_COUNTER_KIND
        if family.kind is Kind.HISTOGRAM and taken(f"{name}_created"):
            kinds[i] = SPLIT_HISTOGRAM_KIND
            headers.append(b"")
            created_names.append(b"")
            continue
        unit = family.unit if kind != "info" and name.endswith(f"_{family.unit}") else ""
        text = _openmetrics_help(family)
        unit_line = f"# UNIT {name} {unit}\n" if unit else ""
        headers.append(f"# HELP {name} {text}\n# TYPE {name} {kind}\n{unit_line}".encode())
        since = f"{name}_created"
        written = created and kind in ("counter", "histogram") and not taken(since)
        created_names.append(since.encode() if written else b"")
    return Headers(
        PackedTexts.of(headers),
        PackedTexts.of(family.name.encode() for family in families),
        PackedTexts.of(created_names),
        kinds,
    )


def _openmetrics_family(family: Family, taken: NameTaken) -> tuple[str, str]:
    """Return the name and type of a family in OpenMetrics."""
    if family.kind is Kind.COUNTER:
        base = family.name.removesuffix("_total")
        legal = base and base != family.name and not taken(base) and not taken(f"{base}_created")
        legal = legal and not _is_start_time(base, taken)
        return (base, "counter") if legal else (family.name, "unknown")
    if family.kind is Kind.INFO:
        base = family.name.removesuffix("_info")
        legal = base and base != family.name and not taken(base) and not taken(f"{base}_total")
        legal = legal and not _is_start_time(base, taken)
        return (base, "info") if legal else (family.name, "gauge")
    return family.name, "unknown" if family.kind in (Kind.UNKNOWN, Kind.SUMMARY) else EXPOSED_TYPES[family.kind]


def _is_start_time(name: str, taken: NameTaken) -> bool:
    """Whether a counter or a histogram owns a name that ends in `_created`."""
    owner = name.removesuffix("_created")
    return owner != name and (taken(f"{owner}_total") or taken(f"{owner}_bucket"))


def split_histogram(family: Family, lines: bytes) -> Iterator[bytes]:
    """Yield the lines of a histogram as three families of type `unknown`.

    Args:
        family: The histogram.
        lines: The lines of all its series, without a header.
    """
    parts: dict[str, list[bytes]] = {f"{family.name}{suffix}": [] for suffix in HISTOGRAM_SUFFIXES if suffix}
    for line in lines.split(b"\n")[:-1]:
        parts[_SAMPLE_NAME.match(line)[0].decode()].append(line + b"\n")  # type: ignore[index]
    text = _openmetrics_help(family)
    for name, found in parts.items():
        if found:
            yield b"".join([f"# HELP {name} {text}\n# TYPE {name} unknown\n".encode(), *found])


def _openmetrics_help(family: Family) -> str:
    return family.help.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def protobuf_headers(families: Sequence[Family]) -> Headers:
    """Return the fields name, help, type and unit of io.prometheus.client.MetricFamily."""
    kinds = _kinds(families)
    nothing = PackedTexts.of(b"" for _ in families)
    headers = PackedTexts.of(
        _protobuf_header(family, kind) for family, kind in zip(families, kinds.tolist(), strict=True)
    )
    return Headers(headers, nothing, nothing, kinds)


def _protobuf_header(family: Family, kind: int) -> bytes:
    fields = delimited(1, family.name.encode())
    if family.help:
        fields += delimited(2, family.help.encode())
    fields += bytes([3 << 3, _PROTOBUF_TYPES[kind]])
    base = family.name.removesuffix("_total") if kind == COUNTER_KIND else family.name
    if family.unit and base.endswith(f"_{family.unit}"):
        fields += delimited(5, family.unit.encode())
    return fields


def _kinds(families: Sequence[Family]) -> UInt8Array:
    return np.array([_KINDS[family.kind] for family in families], np.uint8)
