"""A compiled function of `Slots`: looks new series up, checks limits, and assigns slots, in the batch's order."""

from typing import NamedTuple

import numpy as np

from kernelcast.bridge.tables.columns import METRIC_LIMIT, PRODUCER_LIMIT, SERIES_LIMIT, Int32Array, Int64Array
from kernelcast.bridge.tables.labels import VACANT
from kernelcast.bridge.tables.producers import UNLISTED_PRODUCER
from kernelcast.columnar.compiled import allocating_kernel


class SlotRequests(NamedTuple):
    """Series that need a slot, one row per series.

    Attributes:
        hashed: Its hash.
        family: Number of its family.
        label_set: Index of its labels.
        producer: Number of its producer.
        lines: Smallest number of lines that it makes.
    """

    hashed: Int64Array
    family: Int32Array
    label_set: Int32Array
    producer: Int32Array
    lines: Int64Array


class Held(NamedTuple):
    """Numbers of lines, updated with each admitted series, and their limits.

    Attributes:
        total: Shape (1,), lines of all series.
        families: Shape (f,), lines of each requested family.
        producers: Lines by producer number.
        limits: Shape (3,): limits for all series, for a family, for a producer.
    """

    total: Int64Array
    families: Int64Array
    producers: Int64Array
    limits: Int64Array


class Index(NamedTuple):
    """Hash table of series.

    Attributes:
        table: Open-addressing hash table of slots.
        hashed: Hash, by slot.
        family: Number of the family, by slot.
        label_set: Number of the label set, by slot.
    """

    table: Int32Array
    hashed: Int64Array
    family: Int32Array
    label_set: Int32Array


@allocating_kernel
def admit(  # noqa: PLR0913, PLR0917  arrays in, arrays out
    asked: SlotRequests,
    sets: Int32Array,
    local: Int64Array,
    held: Held,
    index: Index,
    free: Int32Array,
    slots: Int32Array,
) -> Int64Array:
    """Find or assign the slot of each series.

    Args:
        asked: The series, k of them; the table has room for all.
        sets: Shape (k,), numbers of their label sets. Unknown sets have negative numbers, equal ones the same number.
        local: Shape (k,), index of their families in `held`.
        held: The lines, and their limits.
        index: The table that is searched, and into which new series are inserted.
        free: Shape (k,), free slots, used in this order.
        slots: Shape (k,), output: a slot, or the negative of the code of the reason why there is none.

    Returns:
        The rows that were assigned a new slot.
    """
    # Locals, because each use of a tuple's field costs two atomic operations on its reference count.
    hashes, families, producers, lines = asked.hashed, asked.family, asked.producer, asked.lines
    total, of_family, of_producer, limits = held.total, held.families, held.producers, held.limits
    table, known_hashes, known_families, known_sets = index.table, index.hashed, index.family, index.label_set
    made = np.empty(len(hashes), np.int64)
    n, mask = 0, len(table) - 1
    for i in range(len(hashes)):
        # Linear probing from `hash & mask` on: the series, or the first VACANT place. `into` is the first REMOVED place
        # on the way, which a new series uses again.
        hashed, into = hashes[i], -1
        at = hashed & mask
        slot = table[at]
        while slot != VACANT:
            if slot < 0:
                into = at if into < 0 else into
            elif known_hashes[slot] == hashed and known_families[slot] == families[i] and known_sets[slot] == sets[i]:
                break
            at = (at + 1) & mask
            slot = table[at]
        if slot >= 0:
            slots[i] = slot
            continue
        more, producer = lines[i], producers[i]
        if total[0] + more > limits[0]:
            slots[i] = -SERIES_LIMIT
        elif of_family[local[i]] + more > limits[1]:
            slots[i] = -METRIC_LIMIT
        elif producer != UNLISTED_PRODUCER and of_producer[producer] + more > limits[2]:
            slots[i] = -PRODUCER_LIMIT
        else:
            slots[i] = slot = free[n]
            known_hashes[slot], known_families[slot], known_sets[slot] = hashed, families[i], sets[i]
            table[at if into < 0 else into] = slot
            total[0] += more
            of_family[local[i]] += more
            of_producer[producer] += more
            made[n] = i
            n += 1
    return made[:n]
