"""Who produces the series: one row per job and instance, and what else is known of each."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.tables.columns import (
    METRIC_LIMIT,
    OTHER_REPLICA,
    PRODUCER_LIMIT,
    SERIES_LIMIT,
    SIGNS,
    Int64Array,
    ProducerColumns,
    UInt8Array,
    WireColumns,
    copy_into,
    empty_producers,
    grown,
)
from kernelcast.bridge.tables.interning import Interning
from kernelcast.columnar.compiled import kernel

NOBODY: Final = 0
"""The row of those that have none of their own: without a name, or beyond the limit."""
MAX_PRODUCERS: Final = 100_000
MAX_COLLECTED: Final = 1000
"""Producers whose conflicts are collected by name at once; those of others are collected together."""
OTHERS: Final = ("other", "")
"""Job and instance of those."""
LIMITS: Final = {SERIES_LIMIT: "series_limit", METRIC_LIMIT: "metric_limit", PRODUCER_LIMIT: "producer_limit"}
"""Why a series is refused for want of room; the index of each is its column in a survey."""


Conflicts = list[tuple[tuple[str, str], dict[str, int]]]
"""By job and instance, signs that the identity is shared: how often each was seen."""


@dataclass(frozen=True, slots=True)
class ProducerRules:
    """What is told of producers.

    Attributes:
        most: How many have a row of their own; the series of others are stored all the same.
        ttl_ms: How long a series stays after its last point; a producer is told of twice as long.
    """

    most: int = MAX_PRODUCERS
    ttl_ms: int = 300_000


@dataclass(frozen=True, slots=True)
class ProducerIndex:
    """What the series numbers of all inputs say of their producers.

    Attributes:
        alive: By writer number, whether a series of it is kept, here or by another replica.
        refused: Shape (producers, len(LIMITS)), series refused for want of room.
    """

    alive: UInt8Array
    refused: Int64Array

    @classmethod
    def empty(cls, producers: int, writers: int) -> "ProducerIndex":
        """Nothing seen yet."""
        return cls(np.zeros(writers, np.uint8), np.zeros((producers, len(LIMITS)), np.int64))


class Producers:
    """The rows of all producers; not thread-safe.

    Attributes:
        columns: The rows, by number.
        most: How many rows there may be.
        unlisted: Series that came from producers for which there was no row.
    """

    def __init__(self, most: int = MAX_PRODUCERS) -> None:
        """Have rows for so many."""
        self.most = most
        self._interning: Interning[tuple[str, str]] = Interning()
        self._interning.number(("", ""))
        self._names: list[tuple[str, str]] = [("", "")]
        self.columns = empty_producers(16)
        self.unlisted = 0

    def __len__(self) -> int:
        return len(self._interning) - 1

    def number(self, producer: tuple[str, str], series: int = 1) -> int:
        """The number of a job and an instance that have brought so many series; NOBODY's beyond the limit."""
        if producer not in self._interning and len(self) >= self.most:
            self.unlisted += series
            return NOBODY
        number = self._interning.number(producer)
        if number == len(self._names):
            self._names.append(producer)
        self._names[number] = producer
        if number >= len(self.columns.partition):
            self.columns = copy_into(empty_producers(grown(number, number + 1)), self.columns)
        return number

    def name(self, number: int) -> tuple[str, str]:
        """The job and instance of a row in use."""
        return self._names[number]

    @property
    def overgrown(self) -> bool:
        """Whether it is time to look for producers that have no series left."""
        return self._interning.overgrown

    @property
    def used(self) -> int:
        """Every number lies below."""
        return self._interning.used

    def sweep(self, in_use: NDArray[np.bool_]) -> None:
        """Forget producers that no series refers to; `in_use` by number."""
        in_use[NOBODY] = True
        gone = self._interning.sweep(in_use)
        self.columns.append_ms[gone] = 0
        self.columns.time_ns[gone] = 0
        self.columns.partition[gone] = -1
        for column in (self.columns.host, self.columns.former_host, self.columns.conflicts):
            column[gone] = 0

    def take_conflicts(self) -> Conflicts:
        """The signs of shared identities since the last call."""
        conflicts = self.columns.conflicts
        rows = np.flatnonzero(conflicts[: self.used].any(axis=1))
        counts = conflicts[rows].tolist()
        named = [(self._names[row], signs) for row, signs in zip(rows.tolist(), counts, strict=True)]
        if len(named) > MAX_COLLECTED:
            rest = conflicts[rows[MAX_COLLECTED:]].sum(axis=0).tolist()
            named = [*named[:MAX_COLLECTED], (OTHERS, rest)]
        conflicts[rows] = 0
        return [(name, dict(zip(SIGNS, signs, strict=True))) for name, signs in named]

    def survey(self, wires: WireColumns, survey: ProducerIndex) -> None:
        """Add what an input's series numbers say, those of refused series included."""
        _fill_index(wires, self.columns, survey.alive, survey.refused)


@kernel
def _fill_index(wires: WireColumns, producers: ProducerColumns, alive: UInt8Array, refused: Int64Array) -> None:
    slots, wire_partitions, wire_appends = wires.slot, wires.partition, wires.append_ms
    wire_writers, wire_producers = wires.writer, wires.producer
    appends, partitions = producers.append_ms, producers.partition
    for i in range(len(slots)):
        partition, producer, slot = wire_partitions[i], wire_producers[i], slots[i]
        if partition < 0 or producer == NOBODY:
            continue
        if slot == -SERIES_LIMIT:
            refused[producer, 0] += 1
        elif slot == -METRIC_LIMIT:
            refused[producer, 1] += 1
        elif slot == -PRODUCER_LIMIT:
            refused[producer, 2] += 1
        elif slot >= 0 or slot == -OTHER_REPLICA:
            alive[wire_writers[i]] = 1
        if wire_appends[i] > appends[producer] or partitions[producer] < 0:
            appends[producer] = max(appends[producer], wire_appends[i])
            partitions[producer] = partition
