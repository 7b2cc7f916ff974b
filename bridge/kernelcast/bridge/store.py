"""The series store: what was read from Kafka last, by series, in columns."""

import threading
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.columns import (
    COUNTS,
    EMPTY,
    FREE,
    LIVE,
    MEMBERSHIP,
    METRIC_LIMIT,
    SERIES_LIMIT,
    STORED,
    TYPE_CONFLICT,
    UNKNOWN,
    FloatArray,
    Int64Array,
    MessageColumns,
    Rules,
    UInt8Array,
    copy_into,
    empty_wires,
    grown,
)
from kernelcast.bridge.layout import Layout, Snapshot, arrange
from kernelcast.bridge.points import HistogramPoints, NumberPoints, histogram_points, number_points
from kernelcast.bridge.slots import SeriesLimits, Slots
from kernelcast.bridge.translate import place
from kernelcast.bridge.upsert import upsert_histograms, upsert_numbers
from kernelcast.columnar import EXPLICIT, Decoded, SeriesIdentity

ADMITTED_AT_ONCE: Final = 1000
"""New series per hold of the lock, so that a scrape waits milliseconds even when a fleet arrives at once."""

RETRIED_BESIDES: Final = 1000
"""Refused series that are tried again at an expiry, beside as many as it removed."""

DEFAULT_RULES: Final = Rules(tolerance_ns=10_000_000_000, takeover_ms=60_000)

Identify = Callable[[int], SeriesIdentity]
BoolArray = NDArray[np.bool_]


class SeriesStore:
    """Holds series; one thread writes, any thread takes snapshots.

    Attributes:
        version: Rises with every change of what is exposed.
    """

    def __init__(
        self, limits: SeriesLimits, *, rules: Rules = DEFAULT_RULES, reserved: frozenset[str] = frozenset()
    ) -> None:
        """Make an empty store.

        Args:
            limits: How much it may hold.
            rules: What points are judged by.
            reserved: Sample names that no series may have, because the process's own metrics have them.
        """
        self._rules = rules
        self._lock = threading.Lock()
        self._slots = Slots(limits, reserved)
        self._wires = empty_wires(1024)
        self._exposed: UInt8Array = np.zeros(16, np.uint8)
        self._layout: Layout | None = None
        self._retry_from = 0
        self.version = 0

    def apply(self, decoded: Decoded, messages: MessageColumns, identify: Identify) -> Int64Array:
        """Store a batch.

        Args:
            decoded: The batch.
            messages: Where each message came from; partitions by their number, as in `expose`.
            identify: What a series number is: `Decoder.identity`.

        Returns:
            Shape (COUNTS,): points by what became of them.
        """
        counts: Int64Array = np.zeros(COUNTS, np.int64)
        numbers = number_points(decoded.numbers)
        histograms = histogram_points(decoded.histograms)
        self._make_room(numbers, histograms, messages)
        self._admit_unknown(numbers.series, identify)
        self._admit_unknown(histograms.series, identify)
        with self._lock:
            if len(numbers.series):
                upsert_numbers(self._slots.series, self._wires, self._exposed, numbers, messages, self._rules, counts)
            self._store_histograms(histograms, messages, counts)
            self._changed(membership=bool(counts[MEMBERSHIP]))
        return counts

    def expose(self, partition: int, *, exposed: bool) -> None:
        """Show or hide the series that a partition owns."""
        with self._lock:
            self._ensure_partitions(partition + 1)
            self._exposed[partition] = exposed
            self._changed(membership=True)

    def drop_partition(self, partition: int) -> tuple[int, NDArray[np.intp]]:
        """Remove the series that a partition owns, at once.

        Returns:
            How many went, and the decoder's numbers that may be forgotten.
        """
        with self._lock:
            self._ensure_partitions(partition + 1)
            self._exposed[partition] = 0
            series, used = self._slots.series, self._slots.used
            gone = (series.state[:used] != FREE) & (series.partition[:used] == partition)
            return self._remove(gone, self._wires.partition == partition)

    def expire(self, oldest_ms: Mapping[int, int]) -> tuple[int, NDArray[np.intp]]:
        """Remove series that were last seen before their partition's limit.

        Args:
            oldest_ms: By partition number, the append time before which a series is too old.

        Returns:
            How many went, and the decoder's numbers that may be forgotten.
        """
        with self._lock:
            limits: Int64Array = np.zeros(len(self._exposed) + 1, np.int64)
            for partition, oldest in oldest_ms.items():
                limits[partition] = oldest
            series, wires, used = self._slots.series, self._wires, self._slots.used
            state = series.state[:used]
            old = series.append_ms[:used] < limits[series.partition[:used]]
            gone = ((state != FREE) & old) | (state == EMPTY)
            return self._remove(gone, wires.append_ms < limits[wires.partition])

    def snapshot(self) -> Snapshot:
        """Everything that is exposed, at one moment; a histogram is in it whole or not at all."""
        with self._lock:
            if self._layout is None:
                self._layout = arrange(self._slots, self._exposed)
            return Snapshot.take(self._layout, self._slots, self.version)

    def states(self) -> dict[str, int]:
        """How many series (a histogram is one) are exposed, hidden until their partition has caught up, and absent."""
        with self._lock:
            series, used = self._slots.series, self._slots.used
            live = series.state[:used] == LIVE
            shown = int(np.count_nonzero(live & (self._exposed[series.partition[:used]] != 0)))
            all_live = int(np.count_nonzero(live))
            held = int(np.count_nonzero(series.state[:used]))
        return {"exposed": shown, "catching_up": all_live - shown, "absent": held - all_live}

    @property
    def lines(self) -> int:
        """Lines that all series held would make: what `SeriesLimits.series` bounds."""
        return self._slots.lines

    def _changed(self, *, membership: bool) -> None:
        self.version += 1
        if membership:
            self._layout = None

    def _ensure_partitions(self, needed: int) -> None:
        if needed > len(self._exposed):
            larger: UInt8Array = np.zeros(needed * 2, np.uint8)
            larger[: len(self._exposed)] = self._exposed
            self._exposed = larger

    def _make_room(self, numbers: NumberPoints, histograms: HistogramPoints, messages: MessageColumns) -> None:
        highest = max((int(c.max()) for c in (numbers.series, histograms.series) if len(c)), default=-1)
        with self._lock:
            if highest >= len(self._wires.slot):
                self._wires = copy_into(empty_wires(grown(len(self._wires.slot), highest + 1)), self._wires)
            if len(messages.partition):
                self._ensure_partitions(int(messages.partition.max()) + 1)

    def _admit_unknown(self, numbers: NDArray[np.int32], identify: Identify) -> None:
        unknown = np.unique(numbers[self._wires.slot[numbers] == -UNKNOWN])
        for begin in range(0, len(unknown), ADMITTED_AT_ONCE):
            chunk = unknown[begin : begin + ADMITTED_AT_ONCE].tolist()
            placements = [place(identify(wire)) for wire in chunk]
            with self._lock:
                for wire, placement in zip(chunk, placements, strict=True):
                    if isinstance(placement, int):
                        self._wires.slot[wire] = -placement
                        continue
                    self._wires.writer[wire] = placement.writer
                    self._wires.cumulative[wire] = placement.cumulative
                    self._wires.slot[wire] = self._slots.admit(placement)

    def _store_histograms(self, points: HistogramPoints, messages: MessageColumns, counts: Int64Array) -> None:
        at, end = 0, len(points.series)
        slots = self._slots
        while at < end:
            schemas, buckets = slots.schemas.arrays, slots.blocks.counts
            at = upsert_histograms(
                slots.series, self._wires, self._exposed, points, messages, self._rules, schemas, buckets, at, counts
            )
            if at < end:
                outcome = slots.rebound(int(self._wires.slot[points.series[at]]), _bounds(points, at))
                if outcome != STORED:
                    counts[outcome] += 1
                    at += 1

    def _remove(self, gone: BoolArray, unseen: BoolArray) -> tuple[int, NDArray[np.intp]]:
        slots = np.flatnonzero(gone)
        wires = self._wires
        orphaned: BoolArray = np.zeros(len(wires.slot), np.bool_)
        mapped = wires.slot >= 0
        orphaned[mapped] = gone[wires.slot[mapped]]
        forgotten = np.flatnonzero((orphaned | unseen) & (wires.partition >= 0))
        wires.slot[forgotten] = -UNKNOWN
        wires.partition[forgotten] = -1
        if len(slots):
            self._slots.free(slots)
            self._try_refused_again(len(slots))
            self._changed(membership=True)
        return len(slots), forgotten

    def _try_refused_again(self, room: int) -> None:
        """Give as many refused series another chance as there is new room, and a few more; other ones each time.

        To judge one takes some 20 µs: all of a fleet that is far over its limit, at every expiry, would be all we do.
        """
        slots = self._wires.slot
        refused = np.flatnonzero((slots == -SERIES_LIMIT) | (slots == -METRIC_LIMIT) | (slots == -TYPE_CONFLICT))
        if not len(refused):
            return
        at = int(np.searchsorted(refused, self._retry_from)) % len(refused)
        chosen = refused[at : at + room + RETRIED_BESIDES]
        slots[chosen] = -UNKNOWN
        self._retry_from = int(chosen[-1]) + 1


def _bounds(points: HistogramPoints, i: int) -> FloatArray | None:
    """The finite bounds of a point; None for the ladder of exponential ones."""
    if not points.flags[i] & EXPLICIT:
        return None
    if points.bucket_indptr[i + 1] - points.bucket_indptr[i] <= 1:
        return np.empty(0, np.float64)
    return points.bounds[points.bounds_indptr[i] : points.bounds_indptr[i + 1]]
