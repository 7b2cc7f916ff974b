"""What the store knows of an input's series numbers: where each goes, and which may be forgotten."""

from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.tables.columns import (
    METRIC_LIMIT,
    PRODUCER_LIMIT,
    SERIES_LIMIT,
    TYPE_CONFLICT,
    UNKNOWN,
    Int32Array,
    Int64Array,
    copy_into,
    empty_wires,
    grown,
)
from kernelcast.bridge.tables.placement import Placement
from kernelcast.columnar import SeriesIdentity, SharedIdentities

RETRIED: Final = [-SERIES_LIMIT, -METRIC_LIMIT, -PRODUCER_LIMIT, -TYPE_CONFLICT]
RETRIED_BESIDES: Final = 1000
"""Refused series that are tried again at an expiry, beside as many as it removed."""

BoolArray = NDArray[np.bool_]


class IdentitySource(Protocol):
    """The part of an input that is needed here."""

    def identity(self, number: int) -> SeriesIdentity | Placement | int:
        """What a series number stands for, or the reason (a code of `columns`) why it is not stored."""

    def forget(self, numbers: Int32Array) -> None:
        """Give numbers back."""


@runtime_checkable
class SharingSource(IdentitySource, Protocol):
    """An input that can say of many series at once what they share."""

    def identities(self, numbers: Int32Array) -> SharedIdentities:
        """What series numbers stand for."""


class Wires:
    """The series numbers of one input; not thread-safe.

    Attributes:
        source: The input.
        columns: One row per number.
    """

    def __init__(self, source: IdentitySource) -> None:
        self.source = source
        self.columns = empty_wires(1024)
        self._retry_from = 0

    def make_room(self, highest: int) -> None:
        """Have a row for every number up to `highest`."""
        known = len(self.columns.slot)
        if highest >= known:
            self.columns = copy_into(empty_wires(grown(known, highest + 1)), self.columns)

    def unknown(self, numbers: Int32Array) -> Int32Array:
        """Those among some numbers that have not been judged yet, each once."""
        found: Int32Array = np.unique(numbers[self.columns.slot[numbers] == -UNKNOWN])
        return found

    def seen_in(self, partition: int) -> BoolArray:
        """Which were last seen in a partition."""
        seen: BoolArray = self.columns.partition == partition
        return seen

    def seen_before(self, oldest_ms: Int64Array) -> BoolArray:
        """Which were last seen before their partition's limit; limits by partition, one more for those never seen."""
        old: BoolArray = self.columns.append_ms < oldest_ms[self.columns.partition]
        return old

    def seen_under(self, keys: Int64Array) -> BoolArray:
        """Which were last seen in messages with one of some keys, given by their hashes."""
        seen: BoolArray = np.isin(self.columns.key_hash, keys) & (self.columns.partition >= 0)
        return seen

    def forget(self, gone: BoolArray, unseen: BoolArray) -> Int32Array:
        """Forget numbers whose slot has gone, and those that have not been seen for long.

        Args:
            gone: By slot.
            unseen: By number.

        Returns:
            The numbers that the input may forget, too.
        """
        wires = self.columns
        orphaned: BoolArray = np.zeros(len(wires.slot), np.bool_)
        mapped = wires.slot >= 0
        orphaned[mapped] = gone[wires.slot[mapped]]
        forgotten = np.flatnonzero((orphaned | unseen) & (wires.partition >= 0))
        wires.slot[forgotten] = -UNKNOWN
        wires.partition[forgotten] = -1
        return forgotten.astype(np.int32)

    def try_refused_again(self, room: int) -> None:
        """Give as many refused series another chance as there is new room, and a few more; other ones each time.

        To judge one takes some 5 µs: all of a fleet that is far over its limit, at every expiry, would be all we do.
        """
        slots = self.columns.slot
        refused = np.flatnonzero(np.isin(slots, RETRIED))
        if not len(refused):
            return
        at = int(np.searchsorted(refused, self._retry_from)) % len(refused)
        chosen = refused[at : at + room + RETRIED_BESIDES]
        slots[chosen] = -UNKNOWN
        self._retry_from = int(chosen[-1]) + 1
