"""The bridge's own series about producers: whether each is up, the age of its last sample, and its target_info.

`SeriesStore` calls `announce` for each batch and `beat` once a second. They are stored like all other series, so that
shards, filters and formats apply to them. They belong to the partition of a producer's last points, and are hidden and
revoked with it.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.tables.columns import INTEGER, LIVE, FloatArray, Int32Array, Int64Array, UInt8Array
from kernelcast.bridge.tables.families import Heading
from kernelcast.bridge.tables.producers import UNLISTED_PRODUCER, ProducerRules, Producers
from kernelcast.bridge.tables.slots import Slots
from kernelcast.bridge.translation.attributes import producer_labels, rendered
from kernelcast.bridge.translation.targets import TargetAttributes
from kernelcast.wire.catalogue import bridge as catalogue

UP: Final = 0
AGE: Final = 1
INFO: Final = 2
"""Kinds of series about a producer: the row of each in `_slot_of`."""
HEADINGS: Final = tuple(
    Heading(row.prometheus_name, row.kind, row.help, "seconds" if row.prometheus_name.endswith("_seconds") else "")
    for row in (catalogue.PRODUCER_UP, catalogue.PRODUCER_AGE, catalogue.TARGET_INFO)
)
"""The family of each kind."""

MISSED_INTERVALS: Final = 3
"""Number of a producer's own intervals without a sample after which it is no longer up."""
SHORTEST_SILENCE_MS: Final = 5_000
"""A shorter silence does not mean that a producer is down: batching, flushing and this check take a second each."""
WEIGHT: Final = 0.25
"""Weight of the newest interval in the moving average of a producer's intervals."""
NEVER_EXPIRES: Final = 2**62
"""Append time of these series: `beat` removes them, not the expiry."""
NEW_PRODUCERS_PER_LOCK: Final = 500
"""New producers for which series are made in one hold of the store's lock, about 2 ms."""


class Heartbeats:
    """The bridge's own series about producers; not thread-safe, the store's lock protects it.

    Attributes:
        targets: Labels of `target_info`.
        has_more: Whether the last call of `beat` left new producers without series; the next call makes more.
    """

    def __init__(self, rules: ProducerRules, producers: Producers, slots: Slots) -> None:
        """Start without series; they are made in `slots`."""
        self._rules, self._producers, self._slots = rules, producers, slots
        self._slot_of: Int32Array = np.full((len(HEADINGS), 16), -1, np.int32)
        self._announced: UInt8Array = np.zeros(16, np.uint8)
        self._seen_ms: Int64Array = np.zeros(16, np.int64)
        self._interval_ms: FloatArray = np.zeros(16, np.float64)
        self.targets = TargetAttributes()
        self.has_more = False

    @property
    def known_producers(self) -> NDArray[np.bool_]:
        """Mask of shape (used,): producers whose series exist here or at another replica."""
        self._make_room()
        known: NDArray[np.bool_] = self._announced[: self._producers.used] != 0
        known |= self._slot_of[INFO, : self._producers.used] >= 0
        return known

    def freed(self, slots: NDArray[np.intp]) -> None:
        """Forget series whose slots are about to be freed."""
        series = self._slots.series
        own = slots[series.writer[slots] < 0]
        if len(own):
            gone = np.zeros(self._slots.used, np.bool_)
            gone[own] = True
            self._slot_of[(self._slot_of >= 0) & gone[self._slot_of]] = -1
            producers = np.unique(series.producer[own])
            self._producers.columns.partition[producers] = -1
            self._announced[producers] = 0
            self.targets.stale.update(producers.tolist())

    def forget(self, producers: Sequence[int]) -> None:
        """Forget producers without series, whose rows new ones may get."""
        self._make_room()
        self.targets.forget(producers)
        self._seen_ms[producers] = 0
        self._interval_ms[producers] = 0

    def announce(self) -> bool:
        """Update `target_info` of producers with new attributes; returns whether series were added or removed."""
        self._make_room()
        partitions = self._producers.columns.partition
        ready = [one for one in self.targets.stale if partitions[one] >= 0 or not self.targets.of(one)]
        chosen = sorted(ready)[:NEW_PRODUCERS_PER_LOCK]
        self.targets.stale.difference_update(chosen)
        labels = [self.targets.labels(producer, self._producers.name(producer)) for producer in chosen]
        return self._replace(INFO, np.array(chosen, np.int32), labels)

    def beat(self, reference_ms: Int64Array, exposed: UInt8Array) -> bool:
        """Update age and `up` of every producer by Kafka's clock.

        Args:
            reference_ms: By partition number, the time of Kafka's clock, as from `SeriesAges.reference_ms`.
            exposed: By partition number, whether it is exposed.

        Returns:
            Whether series were added, removed or moved, so that layouts are out of date.
        """
        self._make_room()
        columns, used = self._producers.columns, self._producers.used
        appends, partitions = columns.append_ms[:used], columns.partition[:used]
        self._learn(appends)
        ages_ms = np.maximum(reference_ms[partitions] - appends, 0)
        known = (partitions >= 0) & (appends > 0)
        known[UNLISTED_PRODUCER] = False
        silent = known & (ages_ms > 2 * self._rules.ttl_ms)
        changed = self.withdraw(np.flatnonzero(silent))
        new = np.flatnonzero(known & ~silent & (self._announced[:used] == 0))
        self.has_more = len(new) > NEW_PRODUCERS_PER_LOCK
        chosen: Int32Array = new[:NEW_PRODUCERS_PER_LOCK].astype(np.int32)
        labels = [rendered(producer_labels(self._producers.name(producer))) for producer in chosen.tolist()]
        changed |= self._replace(AGE, chosen, labels) | self._replace(UP, chosen, labels)
        self._announced[chosen] = 1
        return self._write(ages_ms, exposed) or changed

    def withdraw(self, producers: Int32Array | NDArray[np.intp]) -> bool:
        """Remove the series about producers until new points come from them; returns whether any were removed."""
        slots = self._slot_of[:, producers].ravel()
        slots = slots[slots >= 0]
        if len(slots):
            self.freed(slots.astype(np.intp))
            self._slots.free(slots.astype(np.intp))
        columns = self._producers.columns
        for column in (columns.append_ms, columns.time_ns, self._seen_ms, self._interval_ms):
            column[producers] = 0
        columns.partition[producers] = -1
        self._announced[producers] = 0
        return bool(len(slots))

    def _learn(self, appends: Int64Array) -> None:
        seen, intervals = self._seen_ms[: len(appends)], self._interval_ms[: len(appends)]
        gaps = np.minimum(appends - seen, self._rules.ttl_ms)
        moved = (seen > 0) & (gaps > 0)
        averages = np.where(intervals > 0, intervals + WEIGHT * (gaps - intervals), gaps)
        np.copyto(intervals, averages, where=moved)
        np.copyto(seen, appends)

    def _write(self, ages_ms: Int64Array, exposed: UInt8Array) -> bool:
        series, columns = self._slots.series, self._producers.columns
        limits_ms = np.clip(MISSED_INTERVALS * self._interval_ms, SHORTEST_SILENCE_MS, self._rules.ttl_ms)
        limits_ms[self._interval_ms == 0] = self._rules.ttl_ms
        moved = False
        for kind in (UP, AGE, INFO):
            producers = np.flatnonzero(self._slot_of[kind, : len(ages_ms)] >= 0)
            slots = self._slot_of[kind, producers]
            partitions = columns.partition[producers]
            moved |= bool((exposed[series.partition[slots]] != exposed[partitions]).any())
            series.partition[slots] = partitions
            if kind == UP:
                series.integer[slots] = ages_ms[producers] <= limits_ms[producers]
            elif kind == AGE:
                series.value[slots] = ages_ms[producers] / 1e3
        return moved

    def _replace(self, kind: int, producers: Int32Array, labels: Sequence[bytes]) -> bool:
        """Make or replace the series of a kind about producers; returns whether any were added or removed.

        Args:
            kind: UP, AGE or INFO.
            producers: n different producers.
            labels: The labels of each; empty ones remove its series.
        """
        before = self._slot_of[kind, producers]
        after: Int32Array = np.full(len(producers), -1, np.int32)
        partitions = self._producers.columns.partition[producers]
        rows = np.flatnonzero((partitions >= 0) & np.array([bool(text) for text in labels], np.bool_))
        if len(rows):
            slots = self._slots.admit_own(HEADINGS[kind], [labels[i] for i in rows.tolist()], producers[rows])
            after[rows] = np.maximum(slots, -1)
        changed = after != before
        removed, added = before[changed & (before >= 0)], changed & (after >= 0)
        if len(removed):
            self._slots.free(removed.astype(np.intp))
        self._slot_of[kind, producers] = after
        self._fill(after[added], partitions[added], kind)
        return bool(changed.any())

    def _fill(self, slots: Int32Array, partitions: Int32Array, kind: int) -> None:
        series = self._slots.series
        series.partition[slots] = partitions
        series.append_ms[slots] = NEVER_EXPIRES
        series.integer[slots] = 1
        series.value[slots] = 0.0
        series.start_ns[slots] = series.time_ns[slots] = 0
        series.flags[slots] = 0 if kind == AGE else INTEGER
        series.state[slots] = LIVE

    def _make_room(self) -> None:
        rows_needed = len(self._producers.columns.partition)
        more = rows_needed - len(self._seen_ms)
        if more > 0:
            self._slot_of = np.pad(self._slot_of, ((0, 0), (0, more)), constant_values=-1)
            self._announced = np.pad(self._announced, (0, more))
            self._seen_ms = np.pad(self._seen_ms, (0, more))
            self._interval_ms = np.pad(self._interval_ms, (0, more))
