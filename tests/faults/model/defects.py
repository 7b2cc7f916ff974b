"""Defects that the bridge once had, put back: what shows that the invariants would find them again."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pytest

from kernelcast.bridge.partitions.growth import PartitionGrowth
from kernelcast.bridge.partitions.ownership import Ownership
from kernelcast.bridge.partitions.partition import Partition
from kernelcast.bridge.partitions.series_ages import SeriesAges
from kernelcast.bridge.series.store import SeriesStore
from kernelcast.bridge.tables.columns import EMPTY, FREE, LIVE, NOT_A_HISTOGRAM, Int64Array, MessageColumns
from kernelcast.columnar import Decoded


def silence_since_it_was_read(patch: pytest.MonkeyPatch) -> None:
    """Silence of a partition counts from when this process read it, not from its newest append time.

    A bridge that joins later did not recognise growth then, and so held nothing. Its hold hides the defect by itself.
    """
    original = Ownership.advance
    read_at: dict[int, float] = {}

    def advance(self: Ownership, partition: Partition, **reached: Any) -> None:
        original(self, partition, **reached)
        read_at[id(self.ages)] = reached["now_seconds"]

    def heard_ms(self: SeriesAges, now_seconds: float) -> dict[int, int]:
        heard = {}
        for partition in self._partitions.values():
            if partition.held_until >= 0:
                heard[partition.number] = partition.held_ms
            elif partition.newest_append_ms or not partition.at_end:
                silent = read_at.get(id(self), 0.0) - partition.moved_at_seconds if partition.at_end else 0.0
                heard[partition.number] = partition.newest_append_ms + max(0, round(silent * 1e3))
        return dict.fromkeys(heard, min(heard.values())) if self._joint and heard else heard

    patch.setattr(Ownership, "advance", advance)
    patch.setattr(SeriesAges, "heard_ms", heard_ms)
    patch.setattr(PartitionGrowth, "note_starts", lambda *_arguments: [])


def hidden_partitions_write(patch: pytest.MonkeyPatch) -> None:
    """A series that an exposed partition owns stays with it, and takes the values of one that is catching up."""
    original = SeriesStore.apply

    def apply(self: SeriesStore, decoded: Decoded, messages: MessageColumns, source: Any) -> Int64Array:
        used, series = self._slots.used, self._slots.series
        owners, states = series.partition[:used].copy(), series.state[:used].copy()
        counts = original(self, decoded, messages, source)
        now = self._slots.series.partition[:used]
        held = (states != FREE) & (states != EMPTY)
        leak = held & (self._exposed[owners] != 0) & (self._exposed[np.maximum(now, 0)] == 0)
        now[leak] = owners[leak]
        self._layouts.clear()
        return counts

    patch.setattr(SeriesStore, "apply", apply)


def ready_at_once(patch: pytest.MonkeyPatch) -> None:
    """A bridge is ready before it has caught up."""
    patch.setattr(Ownership, "readiness", lambda _self: (True, ""))


def gauges_stand_still(patch: pytest.MonkeyPatch) -> None:
    """A gauge keeps its first value; once those of a restarted producer did so for a minute."""
    original = SeriesStore.apply

    def apply(self: SeriesStore, decoded: Decoded, messages: MessageColumns, source: Any) -> Int64Array:
        used, before = self._slots.used, self._slots.series
        values, states = before.value[:used].copy(), before.state[:used].copy()
        counts = original(self, decoded, messages, source)
        now = self._slots.series
        gauges = (states == LIVE) & (now.start_ns[:used] == 0) & (now.schema[:used] == NOT_A_HISTOGRAM)
        now.value[:used][gauges] = values[gauges]
        return counts

    patch.setattr(SeriesStore, "apply", apply)


DEFECTS: Final[Mapping[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "an old partition is read again after its keys have moved": silence_since_it_was_read,
    "values of a partition that is catching up": hidden_partitions_write,
    "a bridge is restarted, and lags": ready_at_once,
    "a producer is restarted with other attributes": gauges_stand_still,
}
"""By the name of the example in `examples` that each breaks."""
_IN_THE_END: Final = "the totals are not the truth in the end: producer 0: "
FINDS: Final[Mapping[str, str]] = {
    "an old partition is read again after its keys have moved": "a counter falls",
    "values of a partition that is catching up": "a counter falls",
    "a bridge is restarted, and lags": "ready before it has caught up",
    "replicas share the series out": "a series on two replicas",
    "a producer is restarted with other attributes": f"{_IN_THE_END}the gauge is",
}
"""How the message of the invariant that finds it begins."""
