"""Table of the store's slots: each slot in use holds one series, with its family, labels, bounds and buckets."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.tables.admission import Held, Index, SlotRequests, admit
from kernelcast.bridge.tables.columns import (
    EMPTY,
    EXPONENTIAL,
    FREE,
    MALFORMED_HISTOGRAM,
    METRIC_LIMIT,
    NO_KEY,
    NOT_A_HISTOGRAM,
    OWN,
    PRODUCER_LIMIT,
    SERIES_LIMIT,
    STORED,
    TYPE_CONFLICT,
    FloatArray,
    Int32Array,
    Int64Array,
    copy_into,
    empty_series,
    grown,
)
from kernelcast.bridge.tables.exponential import CAPACITY_WORD
from kernelcast.bridge.tables.families import Families, Family, Heading
from kernelcast.bridge.tables.hashing import stable_hashes
from kernelcast.bridge.tables.labels import LabelIndex
from kernelcast.bridge.tables.metric_names import MetricNames
from kernelcast.bridge.tables.new_series import NewSeries
from kernelcast.bridge.tables.producers import UNLISTED_PRODUCER
from kernelcast.bridge.tables.schemas import BucketBlocks, Schemas
from kernelcast.columnar.distinct import distinct_numbers, first_uses
from kernelcast.wire.catalogue import Kind

LINES_WITHOUT_BOUNDS = 3
"""Lines of a histogram in addition to those of its finite buckets: `+Inf`, sum and count."""
UNLIMITED = 2**62
"""Limit of lines that no table reaches."""


@dataclass(frozen=True, slots=True)
class SeriesLimits:
    """Limits; new series beyond them are refused and counted, before Prometheus' `sample_limit` fails a scrape.

    Attributes:
        series: Lines of all series on `/metrics`.
        series_per_metric: Lines of one family.
        series_per_producer: Lines of one job and instance.
    """

    series: int = 2_000_000
    series_per_metric: int = 1_000_000
    series_per_producer: int = 1_000_000


class Slots:
    """Table of slots; not thread-safe, the store's lock protects it.

    Attributes:
        series: The columns.
        used: Number of slots ever used; the number of every slot is below it.
        limits: Largest numbers of lines.
        lines: Lines of all stored series, including those that the bridge itself writes.
        producer_lines: Lines of each producer's series, by the producer's number; without the bridge's own series.
        families: Families of the stored series.
        labels: Labels of the stored series.
        schemas: Bounds of histograms.
        blocks: Bucket counts of histograms.
        names: Names on the wire of the stored series' metrics.
        renamed: Slots whose series went to another metric at the last `admit`.
    """

    def __init__(self, limits: SeriesLimits, reserved: frozenset[str]) -> None:
        self.limits = limits
        self._free: list[int] = []
        self.series = empty_series(1024)
        self.used = 0
        self.lines = 0
        self.producer_lines: Int64Array = np.zeros(16, np.int64)
        self.families = Families.reserving(reserved)
        self.labels = LabelIndex()
        self.schemas = Schemas()
        self.blocks = BucketBlocks()
        self.names = MetricNames()
        self.renamed: Int32Array = np.zeros(0, np.int32)

    def admit(self, arrivals: NewSeries, producers: Int32Array) -> Int32Array:
        """Return the slot of each series; new series are assigned slots.

        Args:
            arrivals: The series.
            producers: Shape (m,), the numbers of their producers.

        Returns:
            Shape (m,), in the order of the series: a slot, or the negative of a code of `columns`, such as
            -SERIES_LIMIT, which is the reason why the series has none.
        """
        hashed = arrivals.hashes()
        slots: Int32Array = np.full(len(hashed), -TYPE_CONFLICT, np.int32)
        self.renamed = self.renamed[:0]
        numbers = self._families_of(arrivals, arrivals.heading)[arrivals.heading]
        rows, numbers = np.flatnonzero(numbers >= 0), numbers[numbers >= 0]
        if not len(rows):
            return slots
        lines = np.array([_least_lines(heading.kind) for heading in arrivals.headings])[arrivals.heading[rows]]
        asked = SlotRequests(hashed[rows], numbers, arrivals.label_set[rows], producers[rows], lines)
        slots[rows] = self._admit(asked, arrivals.labels)
        sources = [heading.source for heading in arrivals.headings]
        self.renamed = self.names.settle(slots, sources, arrivals.heading)
        self._begin_anew(self.renamed)
        return slots

    def admit_own(self, heading: Heading, labels: Sequence[bytes], producers: Int32Array) -> Int32Array:
        """Return slots for series that the bridge itself writes; reserved names are allowed, limits do not apply.

        Args:
            heading: The family of the series.
            labels: n label sets, one per series.
            producers: Shape (n,), the numbers of the producers that the series are about.

        Returns:
            Shape (n,): a new slot, or the one that this series of the bridge already has. For a series that gets none,
            -TYPE_CONFLICT, because another series has the name and labels.
        """
        distinct = {text: i for i, text in enumerate(dict.fromkeys(labels))}
        texts, label_set = list(distinct), np.array([distinct[text] for text in labels], np.int32)
        hashed = stable_hashes([heading.name], np.zeros(len(labels), np.int32), texts, label_set)
        slots: Int32Array = np.full(len(labels), -TYPE_CONFLICT, np.int32)
        family = self.families.admit(heading, own=True, series=len(labels)) if labels else None
        if family is None:
            return slots
        numbers = np.full(len(labels), family.number, np.int32)
        asked = SlotRequests(hashed, numbers, label_set, producers, np.ones(len(labels), np.int64))
        found = self._admit(asked, texts, OWN)
        mine = (self.series.writer[found] == OWN) & (self.series.producer[found] == producers)
        slots[mine] = found[mine]
        return slots

    def rebound(self, slot: int, bounds: FloatArray | None, words: int) -> int:
        """Change the bounds of a histogram and the size of its block.

        Args:
            slot: The histogram's slot.
            bounds: Finite, rising bounds; None for an exponential histogram.
            words: Number of 64-bit words that its block of bucket counts needs; 0 for no block.

        Returns:
            STORED, or the code of the reason for refusal.
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
        self.producer_lines[producer] += after - before
        return STORED

    def free(self, slots: NDArray[np.intp]) -> None:
        """Free slots."""
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

    def _begin_anew(self, slots: Int32Array) -> None:
        """Forget the points of slots, which keep their names and labels."""
        for slot in slots.tolist():
            finite = self._finite_bounds(slot)
            self._give_back(slot)
            self._count(self._family(slot), 0, -finite)
            self.producer_lines[self.series.producer[slot]] -= finite
        histograms = self.series.schema[slots] != NOT_A_HISTOGRAM
        self._open(slots, 0, np.where(histograms, self.schemas.no_bounds, NOT_A_HISTOGRAM))

    def _release_families(self, numbers: NDArray[np.int32], lines: Int64Array) -> None:
        slots_gone = np.bincount(numbers)
        lines_gone = np.bincount(numbers, weights=lines)
        for number in np.flatnonzero(slots_gone).tolist():
            family = self.families.by_number[number]
            if family is not None:
                self._count(family, -int(slots_gone[number]), -int(lines_gone[number]))
                self.families.release(family)

    def _over_limit(self, family: Family, producer: int, lines: int) -> int:
        """Return the code of the limit that further lines would exceed, or 0. UNLISTED_PRODUCER has none of its own."""
        if self.lines + lines > self.limits.series:
            return SERIES_LIMIT
        if family.lines + lines > self.limits.series_per_metric:
            return METRIC_LIMIT
        held = self.producer_lines[producer] if producer < len(self.producer_lines) else 0
        return PRODUCER_LIMIT if producer != UNLISTED_PRODUCER and held + lines > self.limits.series_per_producer else 0

    def _families_of(self, arrivals: NewSeries, heading: Int32Array) -> Int32Array:
        """Return, for each heading, the number of its family; -1 if it is refused or no series has it.

        Args:
            arrivals: The series and their headings.
            heading: Index of the heading of each series.
        """
        numbers: Int32Array = np.full(len(arrivals.headings), -1, np.int32)
        counts = np.bincount(heading, minlength=len(numbers)).tolist()
        for i in first_uses(heading, len(numbers)):
            family = self.families.admit(arrivals.headings[i], series=counts[i])
            if family is not None:
                numbers[i] = family.number
        return numbers

    def _admit(self, asked: SlotRequests, labels: Sequence[bytes], writer: int = 0) -> Int32Array:
        """Return the slot of each requested series, or the negative of a code as `admit` does.

        Args:
            asked: The series.
            labels: Their label sets, each once.
            writer: The writer of new series; OWN for the bridge's own, which no limit refuses.
        """
        n = len(asked.hashed)
        sets = self.labels.sets.find_all(labels)
        slots: Int32Array = np.empty(n, np.int32)
        free = self._candidates(n)
        self._ensure_producer(int(asked.producer.max()))
        distinct, local = distinct_numbers(asked.family)
        families = [self._family_of(number) for number in distinct.tolist()]
        held = self._held(families, limited=writer != OWN)
        # An unknown label set has no number yet; until `keep` gives it one, a negative number identifies it.
        named = np.where(sets >= 0, sets, -2 - np.arange(len(sets), dtype=np.int32))[asked.label_set]
        series = self.series
        table = self.labels.with_room(series, self.used, n)
        index = Index(table, series.hashed, series.family, series.label_set)
        made = admit(asked, named, local, held, index, free, slots)
        taken, lines = free[: len(made)], asked.lines[made]
        self._take(len(made))
        series.producer[taken] = asked.producer[made]
        self.names.forget(taken)
        self._open(taken, writer, np.where(lines > 1, self.schemas.no_bounds, NOT_A_HISTOGRAM))
        self.labels.keep(series, taken, asked.label_set[made], (labels, sets))
        self._count_families(families, local[made], lines)
        return slots

    def _held(self, families: Sequence[Family], *, limited: bool) -> Held:
        limits = self.limits
        numbers = [limits.series, limits.series_per_metric, limits.series_per_producer] if limited else [UNLIMITED] * 3
        return Held(
            np.array([self.lines], np.int64),
            np.array([family.lines for family in families], np.int64),
            self.producer_lines if limited else np.zeros_like(self.producer_lines),
            np.array(numbers, np.int64),
        )

    def _count_families(self, families: Sequence[Family], index: NDArray[np.intp], lines: Int64Array) -> None:
        """Count new series in their families, and release the families that have no series.

        Args:
            families: Families of the requested series. A family has no series if all of them were refused.
            index: Index of each new series' family in `families`.
            lines: Lines of each new series.
        """
        slots = np.bincount(index, minlength=len(families)).tolist()
        lines_of = np.bincount(index, weights=lines, minlength=len(families)).tolist()
        for family, more_slots, more_lines in zip(families, slots, lines_of, strict=True):
            self._count(family, more_slots, int(more_lines))
            self.families.release(family)

    def _candidates(self, count: int) -> Int32Array:
        """Return the slots that are used next: freed ones, then unused ones, for which the columns are enlarged."""
        reused = self._free[-count:][::-1]
        end = self.used + count - len(reused)
        if end > len(self.series.state):
            self.series = copy_into(empty_series(grown(len(self.series.state), end)), self.series)
        return np.concatenate((np.array(reused, np.int32), np.arange(self.used, end, dtype=np.int32)))

    def _take(self, count: int) -> None:
        """Mark the first `count` slots of `_candidates` as used."""
        reused = min(count, len(self._free))
        del self._free[len(self._free) - reused :]
        self.used += count - reused

    def _open(self, slots: Int32Array | int, writer: int, schema: NDArray[np.int64] | int) -> None:
        """Initialise slots for their first points."""
        series = self.series
        series.state[slots] = EMPTY
        series.writer[slots] = writer
        series.partition[slots] = -1
        series.append_ms[slots] = series.interval_ms[slots] = series.gap_ms[slots] = series.held_ms[slots] = 0
        series.last_gap_ms[slots] = series.usual_gap_ms[slots] = 0
        series.key_hash[slots] = NO_KEY
        series.former_key[slots] = 0
        series.block[slots] = -1
        series.schema[slots] = schema

    def _count(self, family: Family, slots: int, lines: int) -> None:
        family.slots += slots
        family.lines += lines
        self.lines += lines

    def _ensure_producer(self, producer: int) -> None:
        if producer >= len(self.producer_lines):
            more = grown(len(self.producer_lines), producer + 1) - len(self.producer_lines)
            self.producer_lines = np.pad(self.producer_lines, (0, more))

    def _family(self, slot: int) -> Family:
        return self._family_of(int(self.series.family[slot]))

    def _family_of(self, number: int) -> Family:
        family = self.families.by_number[number]
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


def _least_lines(kind: Kind) -> int:
    return LINES_WITHOUT_BOUNDS if kind is Kind.HISTOGRAM else 1
