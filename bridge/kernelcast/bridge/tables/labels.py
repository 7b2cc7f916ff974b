"""Label sets, each stored once in an arena of bytes, and two hash tables, of label sets and of series; see `Slots`.

All metrics of a GPU, a pod or a kernel have the same labels, so that a series needs little memory beside its numbers.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from kernelcast.bridge.tables.columns import (
    FREE,
    Int32Array,
    Int64Array,
    LabelSetColumns,
    SeriesColumns,
    UInt8Array,
    copy_into,
    empty_label_sets,
    empty_series,
    grown,
)
from kernelcast.columnar.compiled import allocating_kernel, kernel

# Both tables use open addressing with linear probing. A table has 2**k places; a place has the number of a set or the
# slot of a series, VACANT or REMOVED. A search starts at place `hash & (2**k - 1)` and goes on, round the end, until it
# finds the entry or a VACANT place; so a removed entry leaves REMOVED, which searches pass. Example, mask 7:
#
#     place      0  1  2   3  4  5  6   7
#     entry      9  V  V   V  V  4  R  12      V: VACANT, R: REMOVED
#
# 12 and 9 hash to 5. The search for 9 passes 5, 6, 7 and finds it in 0; a new entry with hash 5 goes into 6.
VACANT: Final = -1
"""A place that was never used since the table was built: a search ends here."""
REMOVED: Final = -2
"""A place whose entry was removed: a search goes on, an insertion uses it."""
SMALLEST_TABLE: Final = 1024
FULLEST: Final = 0.6
"""Share of used and removed places above which a table is rebuilt: a search passes two to four places on average."""
GARBAGE_BYTES: Final = 1 << 20
"""Bytes of removed labels below which the arena is not copied."""
HASH_MASK: Final = 2**31 - 1
"""So that a hash is not negative, and fits the column of int32."""


@kernel
def _find_sets(  # noqa: PLR0913, PLR0917  arrays in, arrays out
    table: Int32Array,
    sets: LabelSetColumns,
    arena: UInt8Array,
    hashes: Int64Array,
    keys: UInt8Array,
    ends: Int64Array,
    numbers: Int32Array,
) -> None:
    """Write the number of each set, -1 if it is unknown; `ends` are the ends of each one's labels in `keys`."""
    mask = len(table) - 1
    begin = 0
    for i in range(len(hashes)):
        hashed, length = hashes[i], ends[i] - begin
        at = hashed & mask
        numbers[i] = -1
        while table[at] != VACANT:
            number = table[at]
            if number >= 0 and sets.hashed[number] == hashed and sets.length[number] == length:
                start = sets.offset[number]
                j = 0
                while j < length and arena[start + j] == keys[begin + j]:
                    j += 1
                if j == length:
                    numbers[i] = number
                    break
            at = (at + 1) & mask
        begin = ends[i]


@kernel
def _take_out(table: Int32Array, hashes: Int64Array, slots: Int64Array) -> None:
    # Every slot must be in the table, or the search would not end.
    mask = len(table) - 1
    for slot in slots:
        at = hashes[slot] & mask
        while table[at] != slot:
            at = (at + 1) & mask
        table[at] = REMOVED


@kernel
def _insert_all(table: Int32Array, hashes: Int64Array, numbers: Int32Array) -> None:
    mask = len(table) - 1
    for i in range(len(numbers)):
        at = hashes[i] & mask
        while table[at] >= 0:
            at = (at + 1) & mask
        table[at] = numbers[i]


@allocating_kernel
def _release(table: Int32Array, sets: LabelSetColumns, numbers: Int32Array) -> Int32Array:
    """Decrement reference counts; returns the sets without series, which are removed from the table."""
    mask = len(table) - 1
    gone = np.empty(len(numbers), np.int32)
    n = 0
    for number in numbers:
        sets.refs[number] -= 1
        if sets.refs[number] == 0:
            at = sets.hashed[number] & mask
            while table[at] != number:
                at = (at + 1) & mask
            table[at] = REMOVED
            gone[n] = number
            n += 1
    return gone[:n]


@kernel
def _rebuild(table: Int32Array, hashes: Int64Array, states: UInt8Array, slots: int) -> None:
    # Fills a new table with all series; this drops REMOVED places.
    mask = len(table) - 1
    for slot in range(slots):
        if states[slot] != FREE:
            at = hashes[slot] & mask
            while table[at] != VACANT:
                at = (at + 1) & mask
            table[at] = slot


@kernel
def _rebuild_sets(table: Int32Array, sets: LabelSetColumns, used: int) -> None:
    mask = len(table) - 1
    for number in range(used):
        if sets.refs[number] > 0:
            at = sets.hashed[number] & mask
            while table[at] != VACANT:
                at = (at + 1) & mask
            table[at] = number


@allocating_kernel
def _compact(old: UInt8Array, new: UInt8Array, sets: LabelSetColumns, used: int) -> int:
    # Copies the labels in use to a new arena, end to end; returns their bytes. Snapshots may still read the old one.
    at = 0
    for number in range(used):
        if sets.refs[number] > 0:
            start = sets.offset[number]
            length = sets.length[number]
            new[at : at + length] = old[start : start + length]
            sets.offset[number] = at
            at += length
    return at


def _table_for(entries: int) -> Int32Array:
    # With room for half as many entries again, so that a table is not rebuilt soon.
    size = SMALLEST_TABLE
    while size * FULLEST < entries * 1.5 + 1:
        size *= 2
    return np.full(size, VACANT, np.int32)


class LabelSets:
    """Label sets by number; not thread-safe. A snapshot may keep `arena`, because written bytes are never changed."""

    def __init__(self) -> None:
        self.arena: UInt8Array = np.empty(1 << 16, np.uint8)
        self.columns = empty_label_sets(1024)
        self._bytes_used = 0
        self._garbage = 0
        self._used = 0
        self._free: list[int] = []
        self._table = _table_for(0)
        self._occupied = 0

    def find_all(self, labels: Sequence[bytes]) -> Int32Array:
        """Return the numbers of sets, -1 for those that no series has."""
        numbers: Int32Array = np.empty(len(labels), np.int32)
        keys = np.frombuffer(b"".join((*labels, b"\0")), np.uint8)  # numpy refuses an empty buffer
        _find_sets(self._table, self.columns, self.arena, _hashes(labels), keys, np.cumsum(_lengths(labels)), numbers)
        return numbers

    def take_all(self, labels: Sequence[bytes], found: Int32Array, series: Int64Array) -> Int32Array:
        """Return the numbers of sets, and add references to them.

        Args:
            labels: n different sets.
            found: Shape (n,), their numbers from `find_all`.
            series: Shape (n,), references to add to each; with 0, an unknown set gets no number.

        Returns:
            Shape (n,).
        """
        numbers = found.copy()
        wanted = series > 0
        new = np.flatnonzero(wanted & (found < 0))
        if len(new):
            numbers[new] = self._new([labels[i] for i in new.tolist()])
        self.columns.refs[numbers[wanted]] += series[wanted].astype(np.int32)
        return numbers

    def release(self, numbers: Int32Array) -> None:
        """Remove one reference for each occurrence of a set's number."""
        gone = _release(self._table, self.columns, numbers)
        self._free.extend(gone.tolist())
        self._garbage += int(self.columns.length[gone].sum())

    def compact(self) -> None:
        """Copy the arena without its garbage, if more than half of it is garbage."""
        if self._garbage < GARBAGE_BYTES or self._garbage * 2 < self._bytes_used:
            return
        arena: UInt8Array = np.empty(grown(self._bytes_used - self._garbage, 0), np.uint8)
        self._bytes_used = int(_compact(self.arena, arena, self.columns, self._used))
        self.arena = arena
        self._garbage = 0
        self.resize()

    def _new(self, labels: Sequence[bytes]) -> Int32Array:
        """Return numbers for different, unknown sets, without references yet."""
        lengths, hashes = _lengths(labels), _hashes(labels)
        ends = self._bytes_used + np.cumsum(lengths)
        end = int(ends[-1])
        if end > len(self.arena):
            arena: UInt8Array = np.empty(grown(len(self.arena), end), np.uint8)
            arena[: self._bytes_used] = self.arena[: self._bytes_used]
            self.arena = arena
        numbers = self._numbers(len(labels))
        columns = self.columns
        self.arena[self._bytes_used : end] = np.frombuffer(b"".join(labels), np.uint8)
        columns.offset[numbers], columns.length[numbers], columns.hashed[numbers] = ends - lengths, lengths, hashes
        self._bytes_used = end
        self._occupied += len(labels)
        if self._occupied > FULLEST * len(self._table):
            self.resize()  # before the new sets are inserted: it drops sets without references
        _insert_all(self._table, hashes, numbers)
        return numbers

    def _numbers(self, count: int) -> Int32Array:
        """Return unused numbers with rows in the columns: first freed ones, then new ones."""
        reused = self._free[-count:][::-1]
        del self._free[len(self._free) - len(reused) :]
        begin = self._used
        self._used += count - len(reused)
        if self._used > len(self.columns.refs):
            self.columns = copy_into(empty_label_sets(grown(len(self.columns.refs), self._used)), self.columns)
        return np.array([*reused, *range(begin, self._used)], np.int32)

    def resize(self) -> None:
        """Rebuild the table with a size that fits the number of sets."""
        live = self._used - len(self._free)
        self._table = _table_for(live)
        _rebuild_sets(self._table, self.columns, self._used)
        self._occupied = live


class LabelIndex:
    """Finds series by family and labels; not thread-safe.

    Attributes:
        sets: The labels.
    """

    def __init__(self) -> None:
        self.sets = LabelSets()
        self._table = _table_for(0)
        self._occupied = 0

    @staticmethod
    def warm_up() -> None:
        """Call the compiled functions that a few series alone would not call."""
        index, series = LabelIndex(), empty_series(1)
        index._resize(series, 1)
        index.sets.resize()
        _compact(index.sets.arena, index.sets.arena, index.sets.columns, 0)

    def with_room(self, series: SeriesColumns, slots: int, more: int) -> Int32Array:
        """Return the table of slots, enlarged for `more` slots."""
        if self._occupied + more > FULLEST * len(self._table):
            self._resize(series, slots, more)
        return self._table

    def keep(
        self,
        series: SeriesColumns,
        slots: Int32Array,
        label_set: Int32Array,
        labels: tuple[Sequence[bytes], Int32Array],
    ) -> None:
        """Store the labels of slots that were inserted into the table.

        Args:
            series: The slots.
            slots: Shape (n,), the new slots.
            label_set: Shape (n,), index of each one's labels.
            labels: Different sets of rendered labels, and their numbers from `LabelSets.find_all`.
        """
        numbers = self.sets.take_all(*labels, np.bincount(label_set, minlength=len(labels[0])))
        series.label_set[slots] = numbers[label_set]
        self._occupied += len(slots)

    def remove(self, series: SeriesColumns, slots: Int64Array) -> None:
        """Remove slots; called before they are marked as free."""
        _take_out(self._table, series.hashed, slots)
        self.sets.release(series.label_set[slots])

    def compact(self, series: SeriesColumns, slots: int) -> None:
        """Free garbage in arena and tables; called after slots are marked as free."""
        self.sets.compact()
        if self._occupied > SMALLEST_TABLE and np.count_nonzero(series.state[:slots]) * 2 < self._occupied:
            self._resize(series, slots)

    def _resize(self, series: SeriesColumns, slots: int, more: int = 0) -> None:
        live = int(np.count_nonzero(series.state[:slots]))
        self._table = _table_for(live + more)
        _rebuild(self._table, series.hashed, series.state, slots)
        self._occupied = live


def _hashes(labels: Sequence[bytes]) -> Int64Array:
    """Hash sets with this process's random seed, so that no producer can prepare colliding labels."""
    return np.fromiter((hash(one) & HASH_MASK for one in labels), np.int64, len(labels))


def _lengths(labels: Sequence[bytes]) -> Int64Array:
    return np.fromiter(map(len, labels), np.int64, len(labels))
