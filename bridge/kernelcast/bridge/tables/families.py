"""The exposed metric families: their names, kinds and help, and the sample names that they use."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kernelcast.wire.catalogue import Kind

HISTOGRAM_SUFFIXES: Final = ("", "_bucket", "_sum", "_count")
EXPOSED_TYPES: Final = {
    Kind.GAUGE: "gauge",
    Kind.COUNTER: "counter",
    Kind.HISTOGRAM: "histogram",
    Kind.INFO: "gauge",  # text 0.0.4 has no info
    Kind.SUMMARY: "summary",
    Kind.UNKNOWN: "untyped",
}

MAX_CONFLICTS: Final = 100
"""Metrics with conflicting kinds that are counted by name; further ones are counted as OTHERS."""
OTHERS: Final = "other"


class Heading(NamedTuple):
    """Metadata of a family, as its series give it.

    Attributes:
        name: Its name.
        kind: Its kind.
        help: Its help text; used if the family is new, a known family keeps its own.
        unit: Its unit in Prometheus' words, used if the family is new; empty if it has none.
        part_of: See `Family`.
        cumulative: Whether their start times count.
        source: Their metric's name on the wire; empty if that is Prometheus' own.
    """

    name: str
    kind: Kind
    help: str
    unit: str = ""
    part_of: str = ""
    cumulative: bool = False
    source: str = ""


@dataclass(slots=True)
class Family:
    """One metric on `/metrics`.

    Attributes:
        number: Its number, stable while it has series.
        name: Its name.
        kind: Its kind.
        help: Its help text, one line.
        unit: Its unit in Prometheus' words; empty if it has none.
        part_of: Name of the summary whose sums or counts these are; they follow it without a header. Else empty.
        slots: Number of its series.
        lines: Number of lines that they make.
    """

    number: int
    name: str
    kind: Kind
    help: str
    unit: str = ""
    part_of: str = ""
    slots: int = 0
    lines: int = 0

    @property
    def sample_names(self) -> tuple[str, ...]:
        """Return every name that its samples can have."""
        if self.kind is Kind.HISTOGRAM:
            return tuple(self.name + suffix for suffix in HISTOGRAM_SUFFIXES)
        return (self.name,)


def _go_together(family: Family, kind: Kind, help: str) -> bool:  # noqa: A002  the field's name
    """Whether a family may have a series of a kind. The first series with a known kind sets an unknown one."""
    distributions = (Kind.HISTOGRAM, Kind.SUMMARY)
    if family.kind not in distributions and kind not in distributions:
        if family.kind is Kind.UNKNOWN:
            family.kind, family.help = kind, help
        if kind is Kind.UNKNOWN:
            return True
    return EXPOSED_TYPES[family.kind] == EXPOSED_TYPES[kind]


@dataclass(slots=True)
class Families:
    """All families; no two of them share a sample name.

    Attributes:
        by_number: The families, None where a number is free.
        help_conflicts: Series whose help text differs from their family's; the first text is kept.
        type_conflicts: By metric, series refused because a metric of another kind has the name; OTHERS beyond
            MAX_CONFLICTS metrics.
    """

    by_number: list[Family | None] = field(default_factory=list)
    help_conflicts: int = 0
    type_conflicts: dict[str, int] = field(default_factory=dict)
    _reserved: frozenset[str] = frozenset()
    _by_name: dict[str, Family] = field(default_factory=dict)
    _taken: dict[str, str] = field(default_factory=dict)
    _free: list[int] = field(default_factory=list)

    @classmethod
    def reserving(cls, names: Iterable[str]) -> "Families":
        """Make an empty table that reserves the names of the process's own metrics, which are on the same page."""
        return cls(_reserved=frozenset(names))

    def admit(self, heading: Heading, *, own: bool = False, series: int = 1) -> Family | None:
        """Return the family for a heading, a new one if needed; None if its kind conflicts or a sample name is taken.

        Args:
            heading: The family's metadata.
            own: Whether it is the process's own, which may use reserved names.
            series: Number of series, for the counts of conflicts.
        """
        name, kind, text, unit, part_of, *_ = heading
        known = self._by_name.get(name)
        if known is not None and _go_together(known, kind, text):
            self.help_conflicts += series * (known.help != text and kind is not Kind.UNKNOWN)
            return known
        number = self._free[-1] if self._free else len(self.by_number)
        family = Family(number, name, kind, text, unit, part_of)
        if known is not None or any(self._is_taken(sample, own=own) for sample in family.sample_names):
            self._count_conflict(name, series)
            return None
        if self._free:
            self.by_number[self._free.pop()] = family
        else:
            self.by_number.append(family)
        self._by_name[name] = family
        self._taken.update(dict.fromkeys(family.sample_names, name))
        return family

    def release(self, family: Family) -> None:
        """Remove a family without series, which frees its names."""
        if family.slots:
            return
        self.by_number[family.number] = None
        self._free.append(family.number)
        del self._by_name[family.name]
        for sample in family.sample_names:
            del self._taken[sample]

    def takes(self, sample: str) -> bool:
        """Whether a family uses a sample name, or it is reserved."""
        return sample in self._taken or sample in self._reserved

    def sorted(self) -> list[Family]:
        """Return the families in the page's order, by name; a summary's sums and counts follow it directly."""
        return sorted(self._by_name.values(), key=lambda family: (family.part_of or family.name, family.name))

    def _is_taken(self, sample: str, *, own: bool) -> bool:
        return sample in self._taken or (sample in self._reserved and not own)

    def _count_conflict(self, name: str, series: int) -> None:
        count_by_metric(self.type_conflicts, name, series)


def count_by_metric(counts: dict[str, int], metric: str, series: int = 1) -> None:
    """Count series of a metric; those of the 101st and further metrics count as OTHERS."""
    if metric not in counts and len(counts) >= MAX_CONFLICTS:
        metric = OTHERS
    counts[metric] = counts.get(metric, 0) + series
