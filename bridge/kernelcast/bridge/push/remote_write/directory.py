"""Every series that remote write has sent, by number: its labels as symbol numbers, its family.

`KnownSeries` and `TargetInfoProducers` add series; the compiled functions of `encode` read the arrays.
"""

import re
from typing import Any, Final

import numpy as np
from prometheus_client.utils import floatToGoString

from kernelcast.bridge.tables.columns import FloatArray, Int32Array, Int64Array, UInt8Array, grown
from kernelcast.bridge.tables.placement import Placement
from kernelcast.wire.catalogue import Kind

LABEL: Final = re.compile(r'([^=,"]+)="((?:[^"\\]|\\.)*)"')
ESCAPE: Final = re.compile(r"\\(.)")
METADATA_TYPES: Final = {
    Kind.UNKNOWN: 0,
    Kind.COUNTER: 1,
    Kind.GAUGE: 2,
    Kind.HISTOGRAM: 3,
    Kind.SUMMARY: 5,
    Kind.INFO: 2,
}
"""`MetricType` of both versions. An info is the gauge it is when scraped."""


class TextTable:
    """Byte strings end to end: text i is `data[ends[i] : ends[i + 1]]`. Arrays grow by half at a time."""

    def __init__(self) -> None:
        self.data: UInt8Array = np.empty(1 << 16, np.uint8)
        self.ends: Int64Array = np.zeros(1 << 10, np.int64)
        self.count = 0

    def add(self, text: bytes) -> int:
        """Keep a text; its number."""
        start = int(self.ends[self.count])
        stop = start + len(text)
        if stop > len(self.data):
            self.data = _longer(self.data, stop)
        if self.count + 2 > len(self.ends):
            self.ends = _longer(self.ends, self.count + 2)
        self.data[start:stop] = np.frombuffer(text, np.uint8)
        self.count += 1
        self.ends[self.count] = stop
        return self.count - 1


class ListTable:
    """Lists of int32 end to end: list i is `data[ends[i] : ends[i + 1]]`."""

    def __init__(self) -> None:
        self.data: Int32Array = np.empty(1 << 14, np.int32)
        self.ends: Int64Array = np.zeros(1 << 10, np.int64)
        self.count = 0

    def add(self, numbers: list[int]) -> int:
        """Keep a list; its number."""
        start = int(self.ends[self.count])
        stop = start + len(numbers)
        if stop > len(self.data):
            self.data = _longer(self.data, stop)
        if self.count + 2 > len(self.ends):
            self.ends = _longer(self.ends, self.count + 2)
        self.data[start:stop] = numbers
        self.count += 1
        self.ends[self.count] = stop
        return self.count - 1


class Directory:
    """Assigns series numbers: equal placements get the same number, from any input. For one thread.

    A classic histogram has a group of numbers for each of its sets of bounds, with an `+Inf`, sum and count of its own.

    Attributes:
        symbols: Every text, by symbol number; number 0 is empty.
        labels: By series number, its labels as symbol numbers: name, value, name, value…, sorted by name.
        family: int32, by series number, its family.
        families: By family number: kind as metadata has it, help and unit as symbol numbers.
    """

    def __init__(self) -> None:
        self.symbols = TextTable()
        self.labels = ListTable()
        self.family: Int32Array = np.zeros(1 << 10, np.int32)
        self.families: Int32Array = np.zeros((16, 3), np.int32)
        self._symbol: dict[str, int] = {}
        self._family: dict[str, int] = {}
        self._number: dict[tuple[str, bytes], int] = {}
        self._groups: dict[tuple[str, bytes, bytes], int] = {}
        self.symbol("")

    def symbol(self, text: str) -> int:
        """The number of a text."""
        number = self._symbol.get(text)
        if number is None:
            number = self._symbol[text] = self.symbols.add(text.encode())
        return number

    def series(self, placement: Placement) -> int:
        """The number of a series with one value, or of a native histogram."""
        key = (placement.name, placement.labels)
        number = self._number.get(key)
        if number is None:
            family = self._family_of(placement)
            number = self._number[key] = self._add(placement.name, _pairs(placement.labels), family)
        return number

    def group(self, placement: Placement, bounds: FloatArray) -> int:
        """The first of the series of a classic histogram: its buckets, `+Inf` last, then its sum, then its count."""
        key = (placement.name, placement.labels, bounds.tobytes())
        first = self._groups.get(key)
        if first is None:
            family, pairs = self._family_of(placement), _pairs(placement.labels)
            for bound in (*bounds.tolist(), float("inf")):
                number = self._add(f"{placement.name}_bucket", [*pairs, ("le", _bound_text(bound))], family)
                first = number if first is None else first
            for suffix in ("_sum", "_count"):
                self._add(placement.name + suffix, pairs, family)
            assert first is not None  # noqa: S101  there is always the bucket above all bounds
            self._groups[key] = first
        return first

    def _add(self, name: str, pairs: list[tuple[str, str]], family: int) -> int:
        refs = [self.symbol(text) for pair in sorted([("__name__", name), *pairs], key=_encoded_name) for text in pair]
        number = self.labels.add(refs)
        if number >= len(self.family):
            self.family = _longer(self.family, number + 1)
        self.family[number] = family
        return number

    def _family_of(self, placement: Placement) -> int:
        number = self._family.get(placement.name)
        if number is None:
            number = self._family[placement.name] = len(self._family)
            if number >= len(self.families):
                self.families = np.concatenate([self.families, np.zeros_like(self.families)])
            kind = METADATA_TYPES[placement.kind]
            self.families[number] = kind, self.symbol(placement.help), self.symbol(placement.unit)
        return number


def _pairs(labels: bytes) -> list[tuple[str, str]]:
    """The labels of a placement, no longer escaped."""
    return [(name, _unescaped(value)) for name, value in LABEL.findall(labels.decode())]


def _unescaped(value: str) -> str:
    return ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], value) if "\\" in value else value


def _encoded_name(pair: tuple[str, str]) -> bytes:
    return pair[0].encode()


def _bound_text(bound: float) -> str:
    """Format a bound as on `/metrics`."""
    text: str = floatToGoString(bound)  # type: ignore[no-untyped-call]
    return text


def _longer(array: Any, needed: int) -> Any:
    """A longer array that begins with the same numbers; the rest is 0."""
    longer = np.zeros(grown(len(array), needed), array.dtype)
    longer[: len(array)] = array
    return longer
