"""Layouts, the order of the series on a page; and snapshots, a layout with a consistent copy of the values.

`SeriesStore.snapshot` makes them under its lock; `expose` and the pages' ring read them on other threads.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.layouts.exemplars import Exemplars
from kernelcast.bridge.layouts.headers import Headers, NameTaken, openmetrics_headers, protobuf_headers, text_headers
from kernelcast.bridge.layouts.page import PackedTexts, PageLayout, PageValues
from kernelcast.bridge.layouts.view import SeriesView
from kernelcast.bridge.tables.columns import (
    EXPONENTIAL,
    HAS_SUM,
    INTEGER,
    LIVE,
    NOT_A_HISTOGRAM,
    FloatArray,
    Int32Array,
    Int64Array,
    SeriesColumns,
    UInt8Array,
)
from kernelcast.bridge.tables.exponential import HEADER_WORDS, NEGATIVE_LENGTH_WORD, POSITIVE_LENGTH_WORD
from kernelcast.bridge.tables.families import Family
from kernelcast.bridge.tables.slots import Slots
from kernelcast.columnar.compiled import allocating_kernel, kernel

MAX_LAYOUTS: Final = 64
"""Largest number of cached layouts; a site with more shards arranges layouts again for each scrape."""
OTHER_BITS: Final = 32
"""Shards of a page are selected by the upper bits of a series' hash. The lower bits select the replica, and each
replica must have series in all shards."""


@dataclass(frozen=True)
class Layout:
    """The n series of a view, in f families ordered by name.

    It is valid until a series is added, removed, hidden or exposed. The store's lock protects its creation; afterwards
    it is never changed.

    Attributes:
        slots: Shape (n,), their slots, grouped by family.
        starts: Shape (f + 1,), position of each family's first series; ends with n.
        families: The families.
        taken: Whether a sample on this page or on another may have a name.
        arena: Label bytes.
        label_offset: Shape (n,), index of each series' first label byte.
        label_length: Shape (n,), number of label bytes.
    """

    slots: Int32Array
    starts: Int64Array
    families: tuple[Family, ...]
    taken: NameTaken
    arena: UInt8Array
    label_offset: Int64Array
    label_length: Int32Array

    @cached_property
    def text(self) -> PageLayout:
        """The layout for text 0.0.4."""
        return self._page(text_headers(self.families))

    @cached_property
    def openmetrics(self) -> PageLayout:
        """The layout for OpenMetrics."""
        return self._page(openmetrics_headers(self.families, self.taken, created=False))

    @cached_property
    def openmetrics_created(self) -> PageLayout:
        """The layout for OpenMetrics, with the start times of counters and histograms."""
        return self._page(openmetrics_headers(self.families, self.taken, created=True))

    @cached_property
    def protobuf(self) -> PageLayout:
        """The layout for protobuf."""
        return self._page(protobuf_headers(self.families))

    def positions(self, slots: Int64Array) -> Int64Array:
        """Return the positions of slots in this layout, -1 for slots that are not in it."""
        order = self._by_slot
        if not len(order):
            return np.full(len(slots), -1, np.int64)
        at = np.minimum(np.searchsorted(self.slots, slots, sorter=order), len(order) - 1)
        found = order[at]
        return np.where(self.slots[found] == slots, found, -1)

    @cached_property
    def _by_slot(self) -> NDArray[np.intp]:
        """Positions in the order of their slots."""
        return np.argsort(self.slots, kind="stable")

    def _page(self, headers: Headers) -> PageLayout:
        return PageLayout(self.starts, *headers, self.arena, self.label_offset, self.label_length)


@dataclass(frozen=True, slots=True)
class StoreSnapshot:
    """A layout with a consistent copy of its values; it is never changed, so any thread may read it.

    Attributes:
        layout: The series and their order.
        values: The values, in the layout's order.
        version: The store's version at the time of the copy.
        exemplars_by_slot: Exemplars of the store's slots, including slots that are not in the layout.
        plain_bounds: `values.bound_texts` in the form of text 0.0.4; see `Schemas`.
    """

    layout: Layout
    values: PageValues
    version: int
    exemplars_by_slot: Mapping[int, Exemplars] = field(default_factory=dict)
    plain_bounds: tuple[bytes, ...] = ()

    @classmethod
    def take(
        cls, layout: Layout, slots: Slots, version: int, exemplars: Mapping[int, Exemplars] | None = None
    ) -> "StoreSnapshot":
        """Copy the values. The caller holds the store's lock, so this only gathers arrays.

        Args:
            layout: The series.
            slots: The store's slots.
            version: The store's version.
            exemplars: Exemplars by slot.
        """
        n = len(layout.slots)
        value: FloatArray = np.empty(n, np.float64)
        integer: Int64Array = np.empty(n, np.int64)
        start_ns: Int64Array = np.empty(n, np.int64)
        block: Int64Array = np.empty(n, np.int64)
        schema: Int32Array = np.empty(n, np.int32)
        flags: UInt8Array = np.empty(n, np.uint8)
        indptr, bounds = slots.schemas.arrays
        words = _gather(
            slots.series, layout.slots, slots.blocks.counts, indptr, (value, integer, start_ns, block, schema, flags)
        )
        buckets: Int64Array = np.empty(words, np.int64)
        _gather_blocks(slots.series.block, layout.slots, slots.blocks.counts, block, buckets)
        texts = PackedTexts.of(slots.schemas.texts)
        values = PageValues(value, integer, start_ns, block, schema, flags, buckets, indptr, bounds, texts)
        return cls(layout, values, version, exemplars or {}, slots.schemas.plain_texts)

    def exemplars(self) -> dict[int, Exemplars]:
        """Exemplars by position; most series have none.

        This is not done in `take`, because finding 100,000 positions takes tens of milliseconds, which is too long to
        hold the store's lock, and text 0.0.4 has no exemplars.
        """
        by_slot = self.exemplars_by_slot
        if not by_slot:
            return {}
        positions = self.layout.positions(np.fromiter(by_slot, np.int64, len(by_slot))).tolist()
        return {
            position: exemplars
            for position, exemplars in zip(positions, by_slot.values(), strict=True)
            if position >= 0
        }


class SnapshotSource(Protocol):
    """The store of the series."""

    def snapshot(self, view: SeriesView) -> StoreSnapshot:
        """Return a consistent copy of the exposed series of a view."""


@dataclass(slots=True)
class Layouts:
    """Cache of layouts, cleared when series are added, removed, hidden or exposed; the store's lock protects it.

    It keeps the layouts used last, with at most twice as many series in total as the store has.
    """

    _kept: dict[SeriesView, Layout] = field(default_factory=dict)

    def of(self, view: SeriesView, slots: Slots, exposed: UInt8Array) -> Layout:
        """Return the layout of a view."""
        layout = self._kept.pop(view, None) or arrange(slots, exposed, view)
        self._kept[view] = layout
        series = sum(len(kept.slots) for kept in self._kept.values())
        while len(self._kept) > MAX_LAYOUTS or (len(self._kept) > 1 and series > 2 * slots.used):
            series -= len(self._kept.pop(next(iter(self._kept))).slots)
        return layout

    def clear(self) -> None:
        """Clear the cache; called after series were added, removed, hidden or exposed."""
        self._kept.clear()


def arrange(slots: Slots, exposed: UInt8Array, view: SeriesView) -> Layout:
    """Order a view's exposed series by family name, and within a family by slot."""
    families = [family for family in slots.families.sorted() if view.shows(family.part_of or family.name)]
    rank: Int32Array = np.full(max(len(slots.families.by_number), 1), -1, np.int32)
    for position, family in enumerate(families):
        rank[family.number] = position
    starts: Int64Array = np.zeros(len(families) + 1, np.int64)
    order: Int32Array = np.empty(slots.used, np.int32)
    shown = _sort(slots.series, slots.used, exposed, view.shard or (0, 1), rank, starts, order)
    order = order[:shown].copy()
    kept = np.flatnonzero(np.diff(starts))
    sets, numbers = slots.labels.sets.columns, slots.series.label_set[order]
    return Layout(
        order,
        np.append(starts[kept], shown),
        tuple(families[position] for position in kept.tolist()),
        slots.families.takes,
        slots.labels.sets.arena,
        sets.offset[numbers],
        sets.length[numbers],
    )


@allocating_kernel
def _sort(  # noqa: PLR0913, PLR0917  arrays in, arrays out
    series: SeriesColumns,
    used: int,
    exposed: UInt8Array,
    shard: tuple[int, int],
    rank: Int32Array,
    starts: Int64Array,
    order: Int32Array,
) -> int:
    """Counting sort of slots by family; fills `starts` with the first position of each family, and the total."""
    number, count = shard
    states, partitions, hashes, numbers = series.state, series.partition, series.hashed, series.family
    held_ms = series.held_ms
    families = len(starts) - 1
    # Counting sort. Ranks 1, 0, 1, -1 (not shown) of slots 0 to 3 give: starts 0, 1, 3, and order 1, 0, 2.
    ranks = np.empty(used, np.int32)
    for slot in range(used):
        shown = states[slot] == LIVE and exposed[partitions[slot]] != 0 and held_ms[slot] == 0
        if shown and count > 1:
            shown = (hashes[slot] >> OTHER_BITS) % count == number
        ranks[slot] = rank[numbers[slot]] if shown else -1
        if ranks[slot] >= 0:
            starts[ranks[slot] + 1] += 1
    for family in range(families):
        starts[family + 1] += starts[family]
    at = starts.copy()
    for slot in range(used):
        if ranks[slot] >= 0:
            order[at[ranks[slot]]] = slot
            at[ranks[slot]] += 1
    return int(starts[families])


@kernel
def _gather(
    series: SeriesColumns,
    slots: Int32Array,
    counts: Int64Array,
    indptr: Int64Array,
    into: tuple[FloatArray, Int64Array, Int64Array, Int64Array, Int32Array, UInt8Array],
) -> int:
    """Copy the columns; fills `block` with the start of each block in the copy, and returns their total length."""
    value, integer, start_ns, block, schema, flags = into
    values, integers, starts, schemas = series.value, series.integer, series.start_ns, series.schema
    all_flags, blocks = series.flags, series.block
    words = 0
    for i in range(len(slots)):
        slot = slots[i]
        value[i] = values[slot]
        integer[i] = integers[slot]
        start_ns[i] = starts[slot]
        schema[i] = schemas[slot]
        flags[i] = all_flags[slot] & (INTEGER | HAS_SUM)
        block[i] = words
        if schema[i] == NOT_A_HISTOGRAM:
            continue
        at = blocks[slot]
        if at < 0:
            continue
        if schema[i] == EXPONENTIAL:
            words += HEADER_WORDS + counts[at + POSITIVE_LENGTH_WORD] + counts[at + NEGATIVE_LENGTH_WORD]
        else:
            words += indptr[schema[i] + 1] - indptr[schema[i]]
    return words


@allocating_kernel
def _gather_blocks(
    blocks: Int64Array, slots: Int32Array, counts: Int64Array, starts: Int64Array, into: Int64Array
) -> None:
    # `starts` is the column `block` that `_gather` filled: a series without a block has the start of the next one.
    for i in range(len(slots)):
        start = starts[i]
        stop = starts[i + 1] if i + 1 < len(slots) else len(into)
        if start < stop:
            at = blocks[slots[i]]
            into[start:stop] = counts[at : at + stop - start]
