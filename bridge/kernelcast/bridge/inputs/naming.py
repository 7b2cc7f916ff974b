"""Series that already have Prometheus' names, from inputs of text and remote write: their placement in the store.

Names stay as they are; labels get one canonical spelling, so that a series has one slot.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kernelcast.bridge.tables.columns import LABELS_TOO_LONG, TYPE_CONFLICT, UNNAMED, WIRE_ONLY
from kernelcast.bridge.tables.families import HISTOGRAM_SUFFIXES
from kernelcast.bridge.tables.placement import Placement
from kernelcast.bridge.translation.attributes import LONGEST_LABELS_BYTES, label_name, rendered
from kernelcast.columnar import DecoderLimits
from kernelcast.runtime.prometheus_text import unescaped
from kernelcast.wire.catalogue import BY_OTHER_NAME, BY_PROMETHEUS_NAME, Kind
from kernelcast.wire.errors import DecodeError

LONGEST_NAME: Final = 8 * 1024
"""Characters; a longer text is no name, and would fill pages."""
LONGEST_REMEMBERED: Final = 256
"""Characters of the longest label name whose legal form is cached."""
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_LEGAL_LABEL: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9_:]")
_VALUE_OF: Final = {name: re.compile(rf'(?:^|,){name}="((?:[^"\\]++|\\.)*+)"') for name in ("job", "instance")}

_CATALOGUE_HISTOGRAM_NAMES: Final = frozenset(
    f"{row.prometheus_name}{suffix}"
    for row in BY_PROMETHEUS_NAME.values()
    if row.kind is Kind.HISTOGRAM and row.exposed
    for suffix in HISTOGRAM_SUFFIXES
    if suffix
)
"""Reserved names: another metric with one of them would block a whole histogram of the catalogue."""


@dataclass(frozen=True, slots=True)
class DescribedFamily:
    """A family as its producer describes it; `Parsing.shared_family` returns one object for all its series.

    Attributes:
        name: Its name, legal.
        kind: Its kind.
        help: One line for people.
        unit: Prometheus' word for its unit.
        part_of: The summary whose sums or counts these are; else empty.
    """

    name: str
    kind: Kind
    help: str = ""
    unit: str = ""
    part_of: str = ""


@dataclass(frozen=True, slots=True)
class NamedSeries:
    """A series under Prometheus' names.

    Attributes:
        family: Its family.
        labels: `a="b",c="d"`, sorted, escaped, without braces.
    """

    family: DescribedFamily
    labels: bytes

    def placement(self, format_name: str) -> Placement | int:
        """Return its placement, or the reason (a code of `columns`) why it is not stored.

        Args:
            format_name: Its input format; another format is another writer.
        """
        name, kind, help_text = self.family.name, self.family.kind, self.family.help
        row = BY_PROMETHEUS_NAME.get(name) or BY_OTHER_NAME.get(name)
        if not name:
            return UNNAMED
        if name in _CATALOGUE_HISTOGRAM_NAMES:
            return TYPE_CONFLICT
        if row is not None:
            if not row.exposed:
                return WIRE_ONLY
            if kind is Kind.SUMMARY or (row.kind is Kind.HISTOGRAM) != (kind is Kind.HISTOGRAM):
                return TYPE_CONFLICT
            kind, help_text = row.kind, row.help
        if len(self.labels) > LONGEST_LABELS_BYTES:
            return LABELS_TOO_LONG
        producer = _value_of("job", self.labels), _value_of("instance", self.labels)
        unit = self.family.unit if name.removesuffix("_total").endswith(f"_{self.family.unit}") else ""
        return Placement(
            name,
            kind,
            help_text,
            self.labels,
            kind in (Kind.COUNTER, Kind.HISTOGRAM, Kind.SUMMARY),
            (format_name, producer),
            unit,
            producer,
            part_of=self.family.part_of,
        )


def metric_name(name: str) -> str:
    """Return a legal metric name; characters that text 0.0.4 does not allow in names become `_`.

    Raises:
        DecodeError: It is too long to be a name.
    """
    if len(name) > LONGEST_NAME:
        raise DecodeError(
            f"a metric's name is {len(name)} characters long; the limit is {LONGEST_NAME}; shorten it at the producer"
        )
    if _LEGAL_NAME.fullmatch(name):
        return name
    legal = _NOT_IN_A_NAME.sub("_", name)
    return f"_{legal}" if legal[:1].isdigit() else legal


def label_bytes(
    labels: Mapping[str, str] | Iterable[tuple[str, str]], limits: DecoderLimits, kind: Kind = Kind.UNKNOWN
) -> bytes:
    """Labels in canonical spelling: sorted, escaped, none empty.

    Of names that become one, and of a name that is repeated, the different values are joined by `;`.

    A histogram's own `le` becomes `exported_le`: beside the bound of a bucket it would make the whole page invalid.

    Raises:
        DecodeError: They are longer than `DecoderLimits.identity_bytes`.
    """
    values: dict[str, list[str]] = {}
    size = 0
    for key, value in labels.items() if isinstance(labels, Mapping) else labels:
        if not value:
            continue
        name = key if _LEGAL_LABEL.fullmatch(key) else _made_legal(key)
        if name == "le" and kind is Kind.HISTOGRAM:
            name = "exported_le"
        values.setdefault(name, []).append(value)
        size += len(name) + len(value)
        if size > limits.identity_bytes:
            raise DecodeError(
                f"a series' labels are longer than {limits.identity_bytes} bytes, the limit; shorten them at the "
                "producer"
            )
    return rendered({name: ";".join(dict.fromkeys(several)) for name, several in values.items()})


def _made_legal(key: str) -> str:
    if len(key) > LONGEST_REMEMBERED:
        return label_name.__wrapped__(key)  # ten thousand of them would fill the memory
    return label_name(key)


def _value_of(name: str, labels: bytes) -> str:
    found = _VALUE_OF[name].search(labels.decode())
    return unescaped(found[1]) if found else ""
