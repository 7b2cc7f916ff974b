"""Decides between metrics whose names are different on the wire and equal on `/metrics`.

Example: `jobs.done` and `jobs_done` of one producer would share one series, and its value would go back and forth. One
of them is exposed, by a rule that does not depend on which came first: the catalogue's, else the one whose name is
legal as it is, else the lexically first. The other is refused as long as the series of the first is there.
"""

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from kernelcast.bridge.tables.columns import NAME_CONFLICT, Int32Array, grown
from kernelcast.bridge.tables.families import count_by_metric
from kernelcast.bridge.tables.interning import Interning
from kernelcast.wire.catalogue import BY_OTLP_NAME

UNNAMED: Final = 0
"""Number of the empty name: of a slot without a name, and of an input whose names are Prometheus' own."""
_LEGAL: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


class MetricNames:
    """The name on the wire of each slot's metric; not thread-safe, the store's lock protects it.

    Attributes:
        conflicts: By metric, series refused because another metric has their name; OTHERS beyond MAX_CONFLICTS.
    """

    def __init__(self) -> None:
        self.conflicts: dict[str, int] = {}
        self._interning: Interning[str] = Interning()
        self._names = [""]
        self._interning.number("")
        self._of_slot: Int32Array = np.zeros(1024, np.int32)

    def forget(self, slots: Int32Array) -> None:
        """Forget the names of slots, which get another series."""
        self._make_room(int(slots.max(initial=-1)))
        self._of_slot[slots] = UNNAMED

    def settle(self, slots: Int32Array, names: Sequence[str], name: Int32Array) -> Int32Array:
        """Give each slot to one name; `slots` gets -NAME_CONFLICT for the series of other names.

        Args:
            slots: Shape (m,), the slot of each new series, or a negative reason why it has none.
            names: Names of metrics, empty if they are Prometheus' own.
            name: Shape (m,), index of each series' name.

        Returns:
            The slots whose series belonged to another name before.
        """
        numbers = np.array([self._number(each) for each in names], np.int32)[name]
        rows = np.flatnonzero((slots >= 0) & (numbers != UNNAMED))
        of_slot, taken = self._of_slot, set[int]()
        unnamed = rows[of_slot[slots[rows]] == UNNAMED]
        of_slot[slots[unnamed]] = numbers[unnamed]
        differing = rows[of_slot[slots[rows]] != numbers[rows]]
        for slot, number in zip(slots[differing].tolist(), numbers[differing].tolist(), strict=True):
            held = self._names[of_slot[slot]]
            if _rank(self._names[number]) < _rank(held):
                count_by_metric(self.conflicts, held)
                of_slot[slot] = number
                taken.add(slot)
        if len(differing):
            refused = rows[of_slot[slots[rows]] != numbers[rows]]
            for number in numbers[refused].tolist():
                count_by_metric(self.conflicts, self._names[number])
            slots[refused] = -NAME_CONFLICT
        if self._interning.overgrown:
            in_use = np.zeros(self._interning.used, np.bool_)
            in_use[UNNAMED] = in_use[of_slot] = True
            self._interning.sweep(in_use)
        return np.array(sorted(taken), np.int32)

    def _number(self, name: str) -> int:
        number = self._interning.number(name)
        if number == len(self._names):
            self._names.append(name)
        self._names[number] = name
        return number

    def _make_room(self, highest: int) -> None:
        if highest >= len(self._of_slot):
            more = grown(len(self._of_slot), highest + 1) - len(self._of_slot)
            self._of_slot = np.pad(self._of_slot, (0, more))


def _rank(name: str) -> tuple[bool, bool, str]:
    """Return the sort key of a name: the first one keeps the series."""
    return name not in BY_OTLP_NAME, _LEGAL.fullmatch(name) is None, name
