"""Maps an input's series numbers (*wires*) to slots, for `SeriesStore`, and finds those that the input may forget."""

from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.inputs import IdentitySource
from kernelcast.bridge.tables.columns import (
    METRIC_LIMIT,
    NAME_CONFLICT,
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
from kernelcast.bridge.tables.new_series import NewSeries
from kernelcast.bridge.translation.together import place_together
from kernelcast.bridge.translation.translate import Translator
from kernelcast.columnar import SeriesIdentity, SharedIdentities
from kernelcast.columnar.distinct import distinct_numbers

RETRIED: Final = [-SERIES_LIMIT, -METRIC_LIMIT, -PRODUCER_LIMIT, -TYPE_CONFLICT, -NAME_CONFLICT]
"""Slots of refused series that may be admitted later: a limit may have room, a conflict may have ended."""
RETRIED_BESIDES: Final = 1000
"""Refused series that are admitted again at an expiry, in addition to as many as it removed."""

WORTH_SHARING: Final = 4
"""Fewer new series than this are placed one by one: finding their shared parts would cost more."""

BoolArray = NDArray[np.bool_]


@runtime_checkable
class SharingSource(IdentitySource, Protocol):
    """An input that returns many identities at once, with their shared parts."""

    def identities(self, numbers: Int32Array) -> SharedIdentities:
        """Return the identities behind series numbers."""


class Wires:
    """State of the series numbers of one input; not thread-safe, the store's lock protects it.

    Attributes:
        source: The input.
        columns: One row per number.
    """

    def __init__(self, source: IdentitySource) -> None:
        self.source = source
        self.columns = empty_wires(1024)
        self._retry_from = 0

    def arrivals(self, numbers: Int32Array, translator: Translator) -> NewSeries:
        """Return new series as they are placed; their identities are read from the input."""
        source = self.source
        if len(numbers) >= WORTH_SHARING and isinstance(source, SharingSource):
            return place_together(translator, source.identities(numbers))
        identities = [source.identity(number) for number in numbers.tolist()]
        return NewSeries.of([translator.place(one) if isinstance(one, SeriesIdentity) else one for one in identities])

    def make_room(self, highest: int) -> None:
        """Enlarge the columns to have a row for every number up to `highest`."""
        known = len(self.columns.slot)
        if highest >= known:
            self.columns = copy_into(empty_wires(grown(known, highest + 1)), self.columns)

    def unknown(self, numbers: Int32Array) -> Int32Array:
        """Return the numbers that have no slot and no reason for refusal yet, each once."""
        found: Int32Array = numbers[self.columns.slot[numbers] == -UNKNOWN]
        return distinct_numbers(found)[0].astype(np.int32)

    def refuse(self, slots: Int32Array, reason: int) -> None:
        """Refuse the numbers that have one of some slots, for a reason of `columns`."""
        self.columns.slot[np.isin(self.columns.slot, slots)] = -reason

    def seen_in(self, partition: int) -> BoolArray:
        """Return a mask of the numbers last seen in a partition."""
        seen: BoolArray = self.columns.partition == partition
        return seen

    def seen_before(self, oldest_ms: Int64Array) -> BoolArray:
        """Return a mask of the numbers last seen before their partition's limit; the last limit is for unseen ones."""
        old: BoolArray = self.columns.append_ms < oldest_ms[self.columns.partition]
        return old

    def seen_under(self, keys: Int64Array) -> BoolArray:
        """Return a mask of the numbers last seen in messages with one of some keys, given as hashes."""
        seen: BoolArray = np.isin(self.columns.key_hash, keys) & (self.columns.partition >= 0)
        return seen

    def forget(self, gone: BoolArray, unseen: BoolArray) -> Int32Array:
        """Forget numbers whose slot was freed, and those that have not been seen for a time-to-live.

        Args:
            gone: By slot, whether it was freed.
            unseen: By number, whether it has not been seen.

        Returns:
            The numbers that the input may forget as well.
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
        """Admit refused series again: as many as there is new room for, and a few more, different ones each time.

        Admitting one takes some 5 µs. Trying all series of a fleet that is far over its limit, at every expiry, would
        use all of the thread's time.
        """
        slots = self.columns.slot
        refused = np.flatnonzero(np.isin(slots, RETRIED))
        if not len(refused):
            return
        at = int(np.searchsorted(refused, self._retry_from)) % len(refused)
        chosen = np.roll(refused, -at)[: room + RETRIED_BESIDES]
        slots[chosen] = -UNKNOWN
        self._retry_from = int(chosen[-1]) + 1
