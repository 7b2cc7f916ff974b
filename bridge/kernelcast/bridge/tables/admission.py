"""The compiled part of taking new series in: each is looked up, judged by the limits, and given a slot, in order."""

from typing import NamedTuple

import numpy as np

from kernelcast.bridge.tables.columns import METRIC_LIMIT, PRODUCER_LIMIT, SERIES_LIMIT, Int32Array, Int64Array
from kernelcast.bridge.tables.labels import VACANT
from kernelcast.bridge.tables.producers import NOBODY
from kernelcast.columnar.compiled import allocating_kernel


class SlotRequests(NamedTuple):
    """Series that ask for a slot, one row each.

    Attributes:
        hashed: Their hashes.
        family: Numbers of their families.
        label_set: Indices of their labels.
        producer: Numbers of their jobs and instances.
        lines: How many lines each makes at least.
    """

    hashed: Int64Array
    family: Int32Array
    label_set: Int32Array
    producer: Int32Array
    lines: Int64Array


class Held(NamedTuple):
    """How many lines there are, and may be; changed as series come in.

    Attributes:
        total: Shape (1,), of all series.
        families: Shape (f,), of the families that are asked for.
        producers: By producer's number.
        limits: Shape (3,): of all series, of a family, of a producer.
    """

    total: Int64Array
    families: Int64Array
    producers: Int64Array
    limits: Int64Array


class Index(NamedTuple):
    """Where series are found.

    Attributes:
        table: The hash table of slots.
        hashed: By slot.
        family: By slot.
        label_set: By slot.
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
    """Find or make each series' slot.

    Args:
        asked: The series, k of them; the table has room for all.
        sets: Shape (k,), numbers of their labels; any number below 0 for labels that nobody has, the same for the same.
        local: Shape (k,), index of their families in `held`.
        held: The lines, and their limits.
        index: Where they are found; new ones are put into it.
        free: Shape (k,), slots to take, in this order.
        slots: Shape (k,), for the answers: a slot, or the negative of the reason why there is none.

    Returns:
        The rows that took a slot.
    """
    # Locals, because each use of a tuple's field costs two atomic operations on its reference count.
    hashes, families, producers, lines = asked.hashed, asked.family, asked.producer, asked.lines
    total, of_family, of_producer, limits = held.total, held.families, held.producers, held.limits
    table, known_hashes, known_families, known_sets = index.table, index.hashed, index.family, index.label_set
    made = np.empty(len(hashes), np.int64)
    n, mask = 0, len(table) - 1
    for i in range(len(hashes)):
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
        elif producer != NOBODY and of_producer[producer] + more > limits[2]:
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
