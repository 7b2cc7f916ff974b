"""Label bytes of all series in one arena, and the table that finds a series by its family and labels."""

from typing import Final

import numpy as np

from kernelcast.bridge.columns import FREE, Int32Array, Int64Array, SeriesColumns, UInt8Array, grown
from kernelcast.bridge.machine import kernel

VACANT: Final = -1
REMOVED: Final = -2
SMALLEST_TABLE: Final = 1024
FULLEST: Final = 0.6
GARBAGE_BYTES: Final = 1 << 20


@kernel
def _find(
    table: Int32Array, series: SeriesColumns, arena: UInt8Array, hashed: int, family: int, key: UInt8Array
) -> int:
    mask = len(table) - 1
    at = hashed & mask
    while table[at] != VACANT:
        slot = table[at]
        if slot >= 0 and series.hashed[slot] == hashed and series.family[slot] == family:
            length = series.label_length[slot]
            start = series.label_offset[slot]
            same = length == len(key)
            j = 0
            while same and j < length:
                same = arena[start + j] == key[j]
                j += 1
            if same:
                return int(slot)
        at = (at + 1) & mask
    return -1


@kernel
def _insert(table: Int32Array, hashed: int, slot: int) -> None:
    mask = len(table) - 1
    at = hashed & mask
    while table[at] >= 0:
        at = (at + 1) & mask
    table[at] = slot


@kernel
def _remove(table: Int32Array, series: SeriesColumns, slots: Int64Array) -> int:
    mask = len(table) - 1
    bytes_freed = 0
    for slot in slots:
        at = series.hashed[slot] & mask
        while table[at] != slot:
            at = (at + 1) & mask
        table[at] = REMOVED
        bytes_freed += series.label_length[slot]
    return bytes_freed


@kernel
def _rebuild(table: Int32Array, series: SeriesColumns, slots: int) -> None:
    mask = len(table) - 1
    for slot in range(slots):
        if series.state[slot] != FREE:
            at = series.hashed[slot] & mask
            while table[at] != VACANT:
                at = (at + 1) & mask
            table[at] = slot


@kernel
def _compact(old: UInt8Array, new: UInt8Array, series: SeriesColumns, slots: int) -> int:
    at = 0
    for slot in range(slots):
        if series.state[slot] != FREE:
            start = series.label_offset[slot]
            length = series.label_length[slot]
            new[at : at + length] = old[start : start + length]
            series.label_offset[slot] = at
            at += length
    return at


class LabelIndex:
    """Finds and keeps the labels of series; a snapshot may hold `arena`: bytes once written never change in place."""

    def __init__(self) -> None:
        self.arena: UInt8Array = np.empty(1 << 16, np.uint8)
        self._used = 0
        self._garbage = 0
        self._table: Int32Array = np.full(SMALLEST_TABLE, VACANT, np.int32)
        self._occupied = 0

    def find(self, series: SeriesColumns, hashed: int, family: int, labels: bytes) -> int:
        """The slot of a series, -1 where it is not known."""
        return _find(self._table, series, self.arena, hashed, family, np.frombuffer(labels, np.uint8))

    def insert(self, series: SeriesColumns, slot: int, slots: int, labels: bytes) -> None:
        """Keep the labels of a slot whose family and hash are set; it must be one that is not known.

        Args:
            series: The slots.
            slot: The new one, no longer free.
            slots: How many slots have ever been used.
            labels: Its rendered labels.
        """
        needed = self._used + len(labels)
        if needed > len(self.arena):
            self._move(np.empty(grown(len(self.arena), needed), np.uint8))
        self.arena[self._used : needed] = np.frombuffer(labels, np.uint8)
        series.label_offset[slot] = self._used
        series.label_length[slot] = len(labels)
        self._used = needed
        self._occupied += 1
        if self._occupied > FULLEST * len(self._table):
            self._resize(series, slots)
        else:
            _insert(self._table, int(series.hashed[slot]), slot)

    def remove(self, series: SeriesColumns, slots: Int64Array) -> None:
        """Forget slots, before they are marked as free."""
        self._garbage += int(_remove(self._table, series, slots))

    def compact(self, series: SeriesColumns, slots: int) -> None:
        """Give memory back, where more of it is garbage than not."""
        if self._garbage < GARBAGE_BYTES or self._garbage * 2 < self._used:
            return
        arena: UInt8Array = np.empty(grown(self._used - self._garbage, 0), np.uint8)
        self._used = int(_compact(self.arena, arena, series, slots))
        self.arena = arena
        self._garbage = 0
        self._resize(series, slots)

    def _move(self, arena: UInt8Array) -> None:
        arena[: self._used] = self.arena[: self._used]
        self.arena = arena

    def _resize(self, series: SeriesColumns, slots: int) -> None:
        live = int(np.count_nonzero(series.state[:slots]))
        size = SMALLEST_TABLE
        while size * FULLEST < live * 1.5 + 1:
            size *= 2
        self._table = np.full(size, VACANT, np.int32)
        _rebuild(self._table, series, slots)
        self._occupied = live
