"""Table of the store's producers: one row per job and instance; `heartbeats` makes series of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.tables.columns import (
    METRIC_LIMIT,
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

UNLISTED_PRODUCER: Final = 0
"""Row shared by all producers without a name or beyond the limit."""
MAX_PRODUCERS: Final = 100_000
"""Default of the setting `max_producers`."""
MAX_COLLECTED: Final = 1000
"""Producers whose conflicts are collected by name between two calls; the rest is collected under OTHERS."""
OTHERS: Final = ("other", "")
"""Job and instance under which the conflicts of all other producers are collected."""
LIMITS: Final = {SERIES_LIMIT: "series_limit", METRIC_LIMIT: "metric_limit", PRODUCER_LIMIT: "producer_limit"}
"""Limits that refuse series; the position of each is its column in `ProducerIndex.refused`."""


Conflicts = list[tuple[tuple[str, str], dict[str, int]]]
"""By job and instance, the count of each sign that the identity is shared."""


@dataclass(frozen=True, slots=True)
class ProducerRules:
    """Rules for the series about producers.

    Attributes:
        most: Largest number of producers with a row; series of further producers are stored as well.
        ttl_ms: How long a series stays after its last point; the series about a producer stay twice as long.
    """

    most: int = MAX_PRODUCERS
    ttl_ms: int = 300_000


@dataclass(frozen=True, slots=True)
class ProducerIndex:
    """Summary by producer and writer, made from the series numbers of all inputs.

    Attributes:
        alive: By writer number, whether it has a series, here or at another replica.
        refused: Shape (producers, len(LIMITS)): number of series refused by each limit.
    """

    alive: UInt8Array
    refused: Int64Array

    @classmethod
    def empty(cls, producers: int, writers: int) -> "ProducerIndex":
        """Make a summary without series."""
        return cls(np.zeros(writers, np.uint8), np.zeros((producers, len(LIMITS)), np.int64))


class Producers:
    """Table of all producers; not thread-safe, the store's lock protects it.

    Attributes:
        columns: The rows, by number.
        most: Largest number of rows.
        unlisted: Series of producers for which there was no row.
    """

    def __init__(self, most: int = MAX_PRODUCERS) -> None:
        """Make a table for at most `most` producers."""
        self.most = most
        self._interning: Interning[tuple[str, str]] = Interning()
        self._interning.number(("", ""))
        self._names: list[tuple[str, str]] = [("", "")]
        self.columns = empty_producers(16)
        self.unlisted = 0

    def __len__(self) -> int:
        return len(self._interning) - 1

    def number(self, producer: tuple[str, str], series: int = 1) -> int:
        """Return the number of a producer with `series` new series; UNLISTED_PRODUCER beyond the limit."""
        if producer not in self._interning and len(self) >= self.most:
            self.unlisted += series
            return UNLISTED_PRODUCER
        number = self._interning.number(producer)
        if number == len(self._names):
            self._names.append(producer)
        self._names[number] = producer
        if number >= len(self.columns.partition):
            self.columns = copy_into(empty_producers(grown(number, number + 1)), self.columns)
        return number

    def lacks_room_for(self, producers: Iterable[tuple[str, str]]) -> bool:
        """Whether one of some producers would get no row."""
        return len(self) >= self.most and any(one not in self._interning for one in producers)

    def name(self, number: int) -> tuple[str, str]:
        """Return the job and instance of a row in use."""
        return self._names[number]

    @property
    def overgrown(self) -> bool:
        """Whether to look for producers without series."""
        return self._interning.overgrown

    @property
    def used(self) -> int:
        """Number of rows ever used; every number is below it."""
        return self._interning.used

    def sweep(self, in_use: NDArray[np.bool_]) -> list[int]:
        """Remove producers without series, and return their numbers; `in_use` is indexed by number."""
        in_use[UNLISTED_PRODUCER] = True
        gone = self._interning.sweep(in_use)
        self.columns.append_ms[gone] = 0
        self.columns.time_ns[gone] = 0
        self.columns.partition[gone] = -1
        for column in (self.columns.host, self.columns.former_host, self.columns.conflicts, self.columns.ahead):
            column[gone] = 0
        return gone

    def take_conflicts(self) -> Conflicts:
        """Return the signs of shared identities since the last call."""
        conflicts = self.columns.conflicts
        if not conflicts[: self.used].any():
            return []
        rows = np.flatnonzero(conflicts[: self.used].any(axis=1))
        counts = conflicts[rows].tolist()
        named = [(self._names[row], signs) for row, signs in zip(rows.tolist(), counts, strict=True)]
        if len(named) > MAX_COLLECTED:
            rest = conflicts[rows[MAX_COLLECTED:]].sum(axis=0).tolist()
            named = [*named[:MAX_COLLECTED], (OTHERS, rest)]
        conflicts[rows] = 0
        return [(name, dict(zip(SIGNS, signs, strict=True))) for name, signs in named]

    def take_ahead(self) -> list[tuple[tuple[str, str], int]]:
        """Return by job and instance the number of points with the flag AHEAD since the last call."""
        rows = np.flatnonzero(self.columns.ahead[: self.used])
        counts = self.columns.ahead[rows].tolist()
        self.columns.ahead[rows] = 0
        named = [(self._names[row], count) for row, count in zip(rows.tolist()[:MAX_COLLECTED], counts, strict=False)]
        return [*named, (OTHERS, sum(counts[MAX_COLLECTED:]))]

    def survey(self, wires: WireColumns, survey: ProducerIndex) -> None:
        """Add an input's series numbers to a summary, including refused series."""
        _fill_index(wires, self.columns, survey.alive, survey.refused)


@kernel
def _fill_index(wires: WireColumns, producers: ProducerColumns, alive: UInt8Array, refused: Int64Array) -> None:
    slots, wire_partitions, wire_appends = wires.slot, wires.partition, wires.append_ms
    wire_writers, wire_producers = wires.writer, wires.producer
    appends, partitions = producers.append_ms, producers.partition
    for i in range(len(slots)):
        partition, producer, slot = wire_partitions[i], wire_producers[i], slots[i]
        if partition < 0 or producer == UNLISTED_PRODUCER:
            continue
        if slot == -SERIES_LIMIT:
            refused[producer, 0] += 1
        elif slot == -METRIC_LIMIT:
            refused[producer, 1] += 1
        elif slot == -PRODUCER_LIMIT:
            refused[producer, 2] += 1
        elif slot >= 0:
            alive[wire_writers[i]] = 1
        if wire_appends[i] > appends[producer] or partitions[producer] < 0:
            appends[producer] = max(appends[producer], wire_appends[i])
            partitions[producer] = partition
