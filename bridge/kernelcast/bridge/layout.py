"""What a scrape shows and in which order, and the values at one moment."""

from dataclasses import dataclass

import numpy as np

from kernelcast.bridge.columns import (
    HAS_SUM,
    INTEGER,
    LIVE,
    FloatArray,
    Int32Array,
    Int64Array,
    SeriesColumns,
    UInt8Array,
)
from kernelcast.bridge.machine import kernel
from kernelcast.bridge.render import Page, Text, Values
from kernelcast.bridge.slots import Slots


@dataclass(frozen=True, slots=True)
class Layout:
    """The exposed series, families in order of their names; good until a series comes, goes, or changes its visibility.

    Attributes:
        slots: Shape (n,), their slots, grouped by family.
        page: What is written around their values.
    """

    slots: Int32Array
    page: Page


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A layout with its values at one moment.

    Attributes:
        page: What is written around the values.
        values: The values, in the layout's order.
        version: The store's version then.
    """

    page: Page
    values: Values
    version: int

    @classmethod
    def take(cls, layout: Layout, slots: Slots, version: int) -> "Snapshot":
        """Copy the values; the store is locked meanwhile, so this only gathers."""
        n = len(layout.slots)
        value: FloatArray = np.empty(n, np.float64)
        integer: Int64Array = np.empty(n, np.int64)
        block: Int64Array = np.empty(n, np.int64)
        schema: Int32Array = np.empty(n, np.int32)
        flags: UInt8Array = np.empty(n, np.uint8)
        _gather(slots.series, layout.slots, value, integer, block, schema, flags)
        buckets = slots.blocks.counts[: slots.blocks.used].copy()
        indptr = slots.schemas.indptr
        bounds = Text.of(slots.schemas.texts)
        return cls(layout.page, Values(value, integer, block, schema, flags, buckets, indptr, bounds), version)


def arrange(slots: Slots, exposed: UInt8Array) -> Layout:
    """Group the exposed series by family, families by name; inside a family, by slot."""
    families = slots.families.sorted()
    rank: Int32Array = np.zeros(max(len(slots.families.by_number), 1), np.int32)
    for position, family in enumerate(families):
        rank[family.number] = position
    starts: Int64Array = np.zeros(len(families) + 1, np.int64)
    order: Int32Array = np.empty(slots.used, np.int32)
    shown = _sort(slots.series, slots.used, exposed, rank, starts, order)
    order = order[:shown].copy()
    shown_families = [family for position, family in enumerate(families) if starts[position] < starts[position + 1]]
    kept = np.flatnonzero(np.diff(starts))
    page = Page(
        np.append(starts[kept], shown),
        Text.of(family.header for family in shown_families),
        Text.of(family.name.encode() for family in shown_families),
        slots.labels.arena,
        slots.series.label_offset[order],
        slots.series.label_length[order],
    )
    return Layout(order, page)


@kernel
def _sort(
    series: SeriesColumns,
    used: int,
    exposed: UInt8Array,
    rank: Int32Array,
    starts: Int64Array,
    order: Int32Array,
) -> int:
    """A counting sort; `starts` ends as the first position of each family, and the total."""
    families = len(starts) - 1
    for slot in range(used):
        if series.state[slot] == LIVE and exposed[series.partition[slot]] != 0:
            starts[rank[series.family[slot]] + 1] += 1
    for family in range(families):
        starts[family + 1] += starts[family]
    at = starts.copy()
    for slot in range(used):
        if series.state[slot] == LIVE and exposed[series.partition[slot]] != 0:
            family = rank[series.family[slot]]
            order[at[family]] = slot
            at[family] += 1
    return int(starts[families])


@kernel
def _gather(  # noqa: PLR0913, PLR0917  arrays in, arrays out
    series: SeriesColumns,
    slots: Int32Array,
    value: FloatArray,
    integer: Int64Array,
    block: Int64Array,
    schema: Int32Array,
    flags: UInt8Array,
) -> None:
    for i in range(len(slots)):
        slot = slots[i]
        value[i] = series.value[slot]
        integer[i] = series.integer[slot]
        block[i] = series.block[slot]
        schema[i] = series.schema[slot]
        flags[i] = series.flags[slot] & (INTEGER | HAS_SUM)
