"""The metric families that are exposed: their names, kinds and help, and which sample names they take."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from kernelcast.wire.catalogue import Kind

HISTOGRAM_SUFFIXES: Final = ("", "_bucket", "_sum", "_count")
EXPOSED_TYPES: Final = {
    Kind.GAUGE: "gauge",
    Kind.COUNTER: "counter",
    Kind.HISTOGRAM: "histogram",
    Kind.INFO: "gauge",  # text 0.0.4 has no info
}


@dataclass(slots=True)
class Family:
    """One metric on `/metrics`.

    Attributes:
        number: Its number, stable while it has series.
        name: Its name.
        kind: Its kind.
        help: One line for people.
        slots: How many series it has.
        lines: How many lines they make.
    """

    number: int
    name: str
    kind: Kind
    help: str
    slots: int = 0
    lines: int = 0

    @property
    def header(self) -> bytes:
        """The two lines above its samples."""
        text = self.help.replace("\\", "\\\\").replace("\n", "\\n")
        return f"# HELP {self.name} {text}\n# TYPE {self.name} {EXPOSED_TYPES[self.kind]}\n".encode()

    @property
    def sample_names(self) -> tuple[str, ...]:
        """Every name its samples can have."""
        if self.kind is Kind.HISTOGRAM:
            return tuple(self.name + suffix for suffix in HISTOGRAM_SUFFIXES)
        return (self.name,)


@dataclass(slots=True)
class Families:
    """All families; no two of them share a sample name."""

    by_number: list[Family | None] = field(default_factory=list)
    _by_name: dict[str, Family] = field(default_factory=dict)
    _taken: dict[str, str] = field(default_factory=dict)
    _free: list[int] = field(default_factory=list)

    @classmethod
    def reserving(cls, names: Iterable[str]) -> "Families":
        """None yet, and none ever under these names: the process's own metrics stand on the same page."""
        return cls(_taken=dict.fromkeys(names, ""))

    def admit(self, name: str, kind: Kind, help: str) -> Family | None:  # noqa: A002  the field's name
        """The family of that name; None where it is of another kind, or a sample name of it is taken."""
        known = self._by_name.get(name)
        if known is not None:
            return known if EXPOSED_TYPES[known.kind] == EXPOSED_TYPES[kind] else None
        number = self._free[-1] if self._free else len(self.by_number)
        family = Family(number, name, kind, help)
        if any(sample in self._taken for sample in family.sample_names):
            return None
        if self._free:
            self.by_number[self._free.pop()] = family
        else:
            self.by_number.append(family)
        self._by_name[name] = family
        self._taken.update(dict.fromkeys(family.sample_names, name))
        return family

    def release(self, family: Family) -> None:
        """Forget a family that has no series left, so that its names are free."""
        if family.slots:
            return
        self.by_number[family.number] = None
        self._free.append(family.number)
        del self._by_name[family.name]
        for sample in family.sample_names:
            del self._taken[sample]

    def sorted(self) -> list[Family]:
        """By name, as they stand on the page."""
        return [self._by_name[name] for name in sorted(self._by_name)]
