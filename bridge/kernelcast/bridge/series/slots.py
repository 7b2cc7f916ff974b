"""The slots: one series each, with its family, its labels, its bounds and its buckets; given, changed, taken back."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.series.columns import (
    EMPTY,
    EXPONENTIAL,
    FREE,
    MALFORMED_HISTOGRAM,
    METRIC_LIMIT,
    NO_KEY,
    NOT_A_HISTOGRAM,
    OTHER_REPLICA,
    OWN,
    PRODUCER_LIMIT,
    SERIES_LIMIT,
    STORED,
    TYPE_CONFLICT,
    FloatArray,
    Int64Array,
    copy_into,
    empty_series,
    grown,
)
from kernelcast.bridge.series.exponential import CAPACITY_WORD
from kernelcast.bridge.series.families import Families, Family
from kernelcast.bridge.series.labels import LabelIndex, stable_hash
from kernelcast.bridge.series.producers import NOBODY
from kernelcast.bridge.series.schemas import Blocks, Schemas
from kernelcast.bridge.series.share import Share
from kernelcast.bridge.translation.translate import Placement
from kernelcast.wire.catalogue import Kind

LINES_WITHOUT_BOUNDS = 3
"""A histogram's lines beside its finite buckets: `+Inf`, sum and count."""


@dataclass(frozen=True, slots=True)
class SeriesLimits:
    """How much is held; beyond, new series are refused and counted, before Prometheus's `sample_limit` fails a scrape.

    Attributes:
        series: Lines of `/metrics`, in all.
        series_per_metric: Lines of one family.
        series_per_producer: Lines of one job and instance.
    """

    series: int = 2_000_000
    series_per_metric: int = 1_000_000
    series_per_producer: int = 1_000_000


class Slots:
    """Everything that belongs to slots; not thread-safe.

    Attributes:
        series: The columns.
        used: How many slots have ever been used.
        limits: How much they may hold.
        lines: Lines that all series held would make.
        producer_lines: Those of each producer, by its number.
        families: Their families.
        labels: Their labels.
        schemas: Bounds of histograms.
        blocks: Bucket counts of histograms.
    """

    def __init__(self, limits: SeriesLimits, reserved: frozenset[str], share: Share | None = None) -> None:
        self._share = share
        self.limits = limits
        self._free: list[int] = []
        self.series = empty_series(1024)
        self.used = 0
        self.lines = 0
        self.producer_lines: Int64Array = np.zeros(16, np.int64)
        self.families = Families.reserving(reserved)
        self.labels = LabelIndex()
        self.schemas = Schemas()
        self.blocks = Blocks()

    def admit(self, placement: Placement, producer: int = NOBODY, *, own: bool = False) -> int:
        """The slot of a series, a new one if need be; or the negative of the reason why it gets none.

        Args:
            placement: Where it goes.
            producer: The number of its job and instance.
            own: Whether the bridge itself writes it: under reserved names, beyond all limits, in a slot of its own.
        """
        hashed = stable_hash(placement.name, placement.labels)
        if self._share is not None and not self._share.keeps(hashed):
            return -OTHER_REPLICA
        family = self.families.admit(
            placement.name, placement.kind, placement.help, placement.unit, part_of=placement.part_of, own=own
        )
        if family is None:
            return -TYPE_CONFLICT
        known = self.labels.find(self.series, hashed, family.number, placement.labels)
        if known >= 0:
            return -TYPE_CONFLICT if own and self.series.writer[known] != OWN else known
        lines = LINES_WITHOUT_BOUNDS if placement.kind is Kind.HISTOGRAM else 1
        over = 0 if own else self._over_limit(family, producer, lines)
        if over:
            self.families.release(family)
            return -over
        slot = self._new(family, hashed, placement.labels)
        self.series.producer[slot] = producer
        self.series.writer[slot] = OWN if own else 0
        self._count(family, 1, lines)
        if not own:
            self._count_producer(producer, lines)
        return slot

    def rebound(self, slot: int, bounds: FloatArray | None, words: int) -> int:
        """Give a histogram other bounds and a block of another length.

        Args:
            slot: The histogram's.
            bounds: Finite, rising bounds; None makes it an exponential one.
            words: What its block needs.

        Returns:
            STORED, or why that cannot be.
        """
        number = self.schemas.number(bounds)
        if number is None:
            return MALFORMED_HISTOGRAM
        series = self.series
        family = self._family(slot)
        before, after = self._finite_bounds(slot), self.schemas.length(number)
        producer = int(series.producer[slot])
        over = self._over_limit(family, producer, after - before) if after > before else 0
        if over:
            return over
        self._give_back(slot)
        series.block[slot] = self.blocks.take(words) if words else -1
        if number == EXPONENTIAL:
            self.blocks.counts[series.block[slot] + CAPACITY_WORD] = words
        series.schema[slot] = number
        self._count(family, 0, after - before)
        self._count_producer(producer, after - before)
        return STORED

    def free(self, slots: NDArray[np.intp]) -> None:
        """Take slots back."""
        series = self.series
        self.labels.remove(series, slots)
        lines = np.ones(len(slots), np.int64)
        for i in np.flatnonzero(series.schema[slots] != NOT_A_HISTOGRAM).tolist():
            lines[i] = LINES_WITHOUT_BOUNDS + self._finite_bounds(int(slots[i]))
            self._give_back(int(slots[i]))
        self._release_families(series.family[slots], lines)
        others = series.writer[slots] != OWN
        np.subtract.at(self.producer_lines, series.producer[slots][others], lines[others])
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

    def _over_limit(self, family: Family, producer: int, lines: int) -> int:
        if self.lines + lines > self.limits.series:
            return SERIES_LIMIT
        if family.lines + lines > self.limits.series_per_metric:
            return METRIC_LIMIT
        held = self.producer_lines[producer] if producer < len(self.producer_lines) else 0
        return PRODUCER_LIMIT if producer != NOBODY and held + lines > self.limits.series_per_producer else 0

    def _new(self, family: Family, hashed: int, labels: bytes) -> int:
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
        series.append_ms[slot] = series.interval_ms[slot] = 0
        series.key_hash[slot] = NO_KEY
        series.block[slot] = -1
        series.schema[slot] = NOT_A_HISTOGRAM if family.kind is not Kind.HISTOGRAM else self.schemas.no_bounds
        self.labels.insert(series, slot, self.used, labels)
        return slot

    def _count(self, family: Family, slots: int, lines: int) -> None:
        family.slots += slots
        family.lines += lines
        self.lines += lines

    def _count_producer(self, producer: int, lines: int) -> None:
        if producer >= len(self.producer_lines):
            more = grown(len(self.producer_lines), producer + 1) - len(self.producer_lines)
            self.producer_lines = np.pad(self.producer_lines, (0, more))
        self.producer_lines[producer] += lines

    def _family(self, slot: int) -> Family:
        family = self.families.by_number[int(self.series.family[slot])]
        if family is None:
            raise AssertionError("a slot in use keeps its family")
        return family

    def _give_back(self, slot: int) -> None:
        block, schema = int(self.series.block[slot]), int(self.series.schema[slot])
        if block >= 0:
            exponential = schema == EXPONENTIAL
            words = self.blocks.counts[block + CAPACITY_WORD] if exponential else self.schemas.length(schema)
            self.blocks.give_back(block, int(words))

    def _finite_bounds(self, slot: int) -> int:
        schema = int(self.series.schema[slot])
        return self.schemas.length(schema) if schema != NOT_A_HISTOGRAM else 0
