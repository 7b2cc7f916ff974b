"""Counts of delta points that are lost or that overlap, by job and instance; `Deltas.upkeep` takes and exports them."""

from collections import Counter
from typing import Final

import numpy as np

from kernelcast.bridge.delta.columns import LOST, OVERLAP, PASSED
from kernelcast.bridge.tables.columns import Int32Array, UInt8Array, grown
from kernelcast.bridge.tables.interning import Interning
from kernelcast.bridge.translation.attributes import producer_of
from kernelcast.columnar import SeriesIdentity

Name = tuple[str, str]
"""Job and instance."""
UNNAMED: Final[Name] = ("", "")

_COUNTED: Final = np.isin(np.arange(PASSED + 1), [*LOST, OVERLAP])
"""By outcome, whether it is counted by producer."""


class DeltaProducers:
    """Counts points by producer; keeps each producer's name by input and series number. Only one thread uses it."""

    def __init__(self) -> None:
        self._interning: Interning[Name] = Interning()
        self._names: list[Name] = [UNNAMED]
        self._interning.number(UNNAMED)
        self._of_series: dict[object, Int32Array] = {}
        self._counts: Counter[tuple[Name, int]] = Counter()

    def learn(self, source: object, number: int, identity: SeriesIdentity) -> None:
        """Note the producer of an input's series number."""
        numbers = self._of_series.get(source)
        if numbers is None or number >= len(numbers):
            known = 0 if numbers is None else len(numbers)
            longer: Int32Array = np.zeros(grown(known, number + 1), np.int32)
            if numbers is not None:
                longer[:known] = numbers
            numbers = self._of_series[source] = longer
        numbers[number] = self._number(producer_of(identity.resource))

    def forget(self, source: object, numbers: Int32Array) -> None:
        """Forget the producers of series numbers that may be given to other series."""
        known = self._of_series.get(source)
        if known is not None:
            known[numbers[numbers < len(known)]] = 0

    def count(self, source: object, numbers: Int32Array, outcomes: UInt8Array) -> None:
        """Count the outcomes of points, given the series number of each."""
        counted = np.flatnonzero(_COUNTED[outcomes])
        known = self._of_series.get(source)
        if not len(counted) or known is None:
            return
        pairs = known[numbers[counted]].astype(np.int64) * (PASSED + 1) + outcomes[counted]
        for pair, count in zip(*(column.tolist() for column in np.unique(pairs, return_counts=True)), strict=True):
            producer, outcome = divmod(pair, PASSED + 1)
            self._counts[self._names[producer], outcome] += count

    def take(self) -> list[tuple[Name, int, int]]:
        """Return (producer, outcome, count) of everything counted since the last call."""
        counts = [(*pair, count) for pair, count in self._counts.items()]
        self._counts.clear()
        return counts

    def _number(self, producer: Name) -> int:
        if self._interning.overgrown and producer not in self._interning:
            self._sweep()
        number = self._interning.number(producer)
        if number == len(self._names):
            self._names.append(producer)
        self._names[number] = producer
        return number

    def _sweep(self) -> None:
        in_use = np.zeros(self._interning.used, np.bool_)
        in_use[0] = True
        for numbers in self._of_series.values():
            in_use[numbers] = True
        self._interning.sweep(in_use)
