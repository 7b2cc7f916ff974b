"""The slots: one series each, with its family, its labels, its bounds and its buckets; given, changed, taken back."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.columns import (
    EMPTY,
    FREE,
    MALFORMED_HISTOGRAM,
    METRIC_LIMIT,
    NOT_A_HISTOGRAM,
    SERIES_LIMIT,
    STORED,
    TYPE_CONFLICT,
    FloatArray,
    Int64Array,
    copy_into,
    empty_series,
    grown,
)
from kernelcast.bridge.families import Families, Family
from kernelcast.bridge.labels import LabelIndex
from kernelcast.bridge.schemas import Blocks, Schemas
from kernelcast.bridge.translate import Placement
from kernelcast.wire.catalogue import Kind

LINES_WITHOUT_BOUNDS = 3
"""A histogram's lines beside its finite buckets: `+Inf`, sum and count."""


@dataclass(frozen=True, slots=True)
class SeriesLimits:
    """How much is held; beyond, new series are refused and counted, before Prometheus's `sample_limit` fails a scrape.

    Attributes:
        series: Lines of `/metrics`, in all.
        series_per_metric: Lines of one family.
    """

    series: int = 2_000_000
    series_per_metric: int = 1_000_000


class Slots:
    """Everything that belongs to slots; not thread-safe.

    Attributes:
        series: The columns.
        used: How many slots have ever been used.
        lines: Lines that all series held would make.
        families: Their families.
        labels: Their labels.
        schemas: Bounds of histograms.
        blocks: Bucket counts of histograms.
    """

    def __init__(self, limits: SeriesLimits, reserved: frozenset[str]) -> None:
        self._limits = limits
        self._free: list[int] = []
        self.series = empty_series(1024)
        self.used = 0
        self.lines = 0
        self.families = Families.reserving(reserved)
        self.labels = LabelIndex()
        self.schemas = Schemas()
        self.blocks = Blocks()

    def admit(self, placement: Placement) -> int:
        """The slot of a series, a new one if need be; or the negative of the reason why it gets none."""
        family = self.families.admit(placement.name, placement.kind, placement.help)
        if family is None:
            return -TYPE_CONFLICT
        hashed = hash((placement.name, placement.labels))
        known = self.labels.find(self.series, hashed, family.number, placement.labels)
        if known >= 0:
            return known
        lines = LINES_WITHOUT_BOUNDS if placement.kind is Kind.HISTOGRAM else 1
        over = self._over_limit(family, lines)
        if over:
            self.families.release(family)
            return -over
        return self._new(family, hashed, placement.labels, lines)

    def rebound(self, slot: int, bounds: FloatArray | None) -> int:
        """Give a histogram other bounds; None asks for the ladder. Returns STORED, or why that cannot be."""
        number = self.schemas.number(bounds)
        if number is None:
            return MALFORMED_HISTOGRAM
        series = self.series
        family = self._family(slot)
        before, after = self._finite_bounds(slot), self.schemas.length(number)
        over = self._over_limit(family, after - before) if after > before else 0
        if over:
            return over
        if before:
            self.blocks.give_back(int(series.block[slot]), before)
        series.block[slot] = self.blocks.take(after) if after else -1
        series.schema[slot] = number
        self._count(family, 0, after - before)
        return STORED

    def free(self, slots: NDArray[np.intp]) -> None:
        """Take slots back."""
        series = self.series
        self.labels.remove(series, slots)
        lines = np.ones(len(slots), np.int64)
        for i in np.flatnonzero(series.schema[slots] != NOT_A_HISTOGRAM).tolist():
            finite = self._finite_bounds(int(slots[i]))
            lines[i] = LINES_WITHOUT_BOUNDS + finite
            if finite:
                self.blocks.give_back(int(series.block[slots[i]]), finite)
        self._release_families(series.family[slots], lines)
        series.state[slots] = FREE
        self._free.extend(slots.tolist())
        self.labels.compact(series, self.used)

    def _release_families(self, numbers: NDArray[np.int32], lines: Int64Array) -> None:
        slots_gone = np.bincount(numbers)
        lines_gone = np.bincount(numbers, weights=lines)
        for number in np.flatnonzero(slots_gone).tolist():
            family = self.families.by_number[number]
            if family is not None:
                self._count(family, -int(slots_gone[number]), -int(lines_gone[number]))
                self.families.release(family)

    def _over_limit(self, family: Family, lines: int) -> int:
        if self.lines + lines > self._limits.series:
            return SERIES_LIMIT
        return METRIC_LIMIT if family.lines + lines > self._limits.series_per_metric else 0

    def _new(self, family: Family, hashed: int, labels: bytes, lines: int) -> int:
        slot = self._free.pop() if self._free else self.used
        if slot == self.used:
            self.used += 1
            if slot == len(self.series.state):
                self.series = copy_into(empty_series(grown(slot, slot + 1)), self.series)
        series = self.series
        series.state[slot] = EMPTY
        series.hashed[slot] = hashed
        series.family[slot] = family.number
        series.partition[slot] = -1
        series.append_ms[slot] = 0
        series.block[slot] = -1
        series.schema[slot] = NOT_A_HISTOGRAM if family.kind is not Kind.HISTOGRAM else self.schemas.no_bounds
        self.labels.insert(series, slot, self.used, labels)
        self._count(family, 1, lines)
        return slot

    def _count(self, family: Family, slots: int, lines: int) -> None:
        family.slots += slots
        family.lines += lines
        self.lines += lines

    def _family(self, slot: int) -> Family:
        family = self.families.by_number[int(self.series.family[slot])]
        if family is None:
            raise AssertionError("a slot in use keeps its family")
        return family

    def _finite_bounds(self, slot: int) -> int:
        schema = int(self.series.schema[slot])
        return self.schemas.length(schema) if schema != NOT_A_HISTOGRAM else 0
