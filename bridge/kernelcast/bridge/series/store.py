"""The series store: the newest point of each series, in columns.

`Intake` calls everything that changes it, on the consuming thread; scrapes and pages call `snapshot` on theirs.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from kernelcast.bridge.inputs import IdentitySource
from kernelcast.bridge.layouts.layout import Layouts, StoreSnapshot
from kernelcast.bridge.layouts.view import ALL, SeriesView
from kernelcast.bridge.partitions.outages import NO_OUTAGES, Growth, OutageRows
from kernelcast.bridge.series.arrival import Tables
from kernelcast.bridge.series.expiry import outlived
from kernelcast.bridge.series.heartbeats import Heartbeats
from kernelcast.bridge.series.held import Hold, release, withdraw
from kernelcast.bridge.series.histograms import bounds_and_words, store_histograms
from kernelcast.bridge.series.kept_exemplars import KeptExemplars
from kernelcast.bridge.series.numbers import store_numbers
from kernelcast.bridge.series.occupancy import Occupancy, states_of
from kernelcast.bridge.series.wires import BoolArray, Wires
from kernelcast.bridge.tables.columns import (
    COUNTS,
    FREE,
    MEMBERSHIP,
    NAME_CONFLICT,
    OWN,
    STORED,
    UNCHANGED,
    UNKNOWN,
    Int32Array,
    Int64Array,
    MessageColumns,
    PointRules,
    UInt8Array,
)
from kernelcast.bridge.tables.new_series import PLACED, NewSeries
from kernelcast.bridge.tables.points import HistogramPoints, histogram_points, number_points
from kernelcast.bridge.tables.producers import UNLISTED_PRODUCER, Conflicts, ProducerIndex, ProducerRules, Producers
from kernelcast.bridge.tables.slots import SeriesLimits, Slots
from kernelcast.bridge.tables.writers import Writers
from kernelcast.bridge.translation.translate import Translator
from kernelcast.columnar import Decoded

NEW_SERIES_PER_LOCK: Final = 4000
"""New series per hold of the lock, so that a scrape waits milliseconds even when a fleet arrives at once."""

MAX_HEARTBEAT_BATCHES: Final = 10
"""Batches of new producers per call of `judge_producers`; series of further ones are added at the next call."""

DEFAULT_RULES: Final = PointRules(takeover_ms=60_000)

Forgotten = list[tuple[IdentitySource, Int32Array]]
"""By input, the series numbers that it may forget."""


class SeriesStore:
    """Holds the newest point of each series. One thread writes, any thread takes snapshots; a lock separates them.

    Attributes:
        version: Rises with every change of the exposed series or values.
        producers: Times of the last points of each job and instance.
    """

    def __init__(
        self,
        limits: SeriesLimits,
        *,
        rules: PointRules = DEFAULT_RULES,
        reserved: frozenset[str] = frozenset(),
        translator: Translator | None = None,
        producers: ProducerRules | None = None,
    ) -> None:
        """Make an empty store.

        Args:
            limits: Largest numbers of series.
            rules: Rules for accepting points and expiring series.
            reserved: Sample names that no series may have, because metrics of this process have them.
            translator: Translates OTLP identities to families and labels; None for default settings.
            producers: Rules for the series about producers (`up`, age, `target_info`); None makes no such series.
        """
        self._rules = rules
        self._translator = translator or Translator()
        self._lock = threading.Lock()
        self._slots = Slots(limits, reserved)
        self._writers = Writers()
        self._wires: dict[int, Wires] = {}
        self._exposed: UInt8Array = np.zeros(16, np.uint8)
        self._growth: UInt8Array = np.zeros(16, np.uint8)
        self._layouts = Layouts()
        self.version = 0
        self.producers = Producers((producers or ProducerRules()).most)
        self._heartbeats = Heartbeats(producers, self.producers, self._slots) if producers else None
        self._survey = ProducerIndex.empty(0, 0)
        self._may_sweep_full_table = True  # set about once a second, because a sweep takes milliseconds
        self._exemplars = KeptExemplars()

    def apply(self, decoded: Decoded, messages: MessageColumns, source: IdentitySource) -> Int64Array:
        """Store a batch.

        Args:
            decoded: The batch.
            messages: Origin of each message; partitions by number, as in `expose`.
            source: The input that decoded it and knows the identities behind its series numbers.

        Returns:
            Shape (COUNTS,): number of points by outcome.
        """
        numbers, histograms = number_points(decoded.numbers), histogram_points(decoded.histograms)
        wires = self._admitted(source, (numbers.series, histograms.series), messages)
        counts: Int64Array = np.zeros(COUNTS, np.int64)
        with self._lock:
            store_numbers(self._tables(wires), numbers, messages, self._rules, counts)
            self._store_histograms(wires, histograms, messages, counts)
            self._exemplars.note(decoded, messages, wires.columns, self._slots)
            announced = self._heartbeats is not None and self._heartbeats.announce()
            self._changed(membership=bool(counts[MEMBERSHIP]) or announced)
        return counts

    def expose(self, partition: int, *, exposed: bool) -> None:
        """Show or hide the series that a partition owns."""
        with self._lock:
            self._ensure_partitions(partition + 1)
            self._exposed[partition] = exposed
            self._changed(membership=True)

    def note_growth(self, growth: Mapping[int, int]) -> None:
        """Set the growth state of each partition, by number: UNCHANGED, GROWN or ADDED."""
        with self._lock:
            self._ensure_partitions(max(growth, default=-1) + 1)
            self._growth[:] = UNCHANGED
            for partition, state in growth.items():
                self._growth[partition] = state

    def release(
        self,
        heard_ms: Mapping[int, int],
        taken_at: Mapping[int, int],
        outages: OutageRows,
        *,
        ttl_ms: int,
        margin_ms: int,
    ) -> int:
        """Expose held series that have expired at their former replica; returns how many. See `held`."""
        with self._lock:
            hold = Hold(self._rules, ttl_ms, margin_ms, self._by_partition(taken_at))
            growth = Growth(self._growth, outages)
            released = release(self._slots.series, self._slots.used, growth, self._by_partition(heard_ms), hold)
            if released:
                self._changed(membership=True)
        return released

    def drop_partition(self, partition: int) -> tuple[int, Forgotten]:
        """Remove the series that a partition owns, at once.

        Returns:
            The number of removed series, and the inputs' series numbers that may be forgotten.
        """
        with self._lock:
            self._ensure_partitions(partition + 1)
            self._exposed[partition] = 0
            series, used = self._slots.series, self._slots.used
            held = series.state[:used] != FREE
            gone = held & (series.partition[:used] == partition)
            writers, others = series.writer[:used][gone], series.writer[:used][held & ~gone]
            self._writers.pause(np.setdiff1d(writers[writers != OWN], others))
            return self._remove(gone, lambda wires: wires.seen_in(partition))

    def expire(
        self,
        oldest_ms: Mapping[int, int],
        heard_ms: Mapping[int, int] = MappingProxyType({}),
        outages: OutageRows = NO_OUTAGES,
    ) -> tuple[int, Forgotten]:
        """Remove series that were last seen before their partition's limit, or have missed too many of their intervals.

        In topics that have grown, series are withdrawn that may have moved to another replica; see `held`.

        Args:
            oldest_ms: By partition number, the append time before which a series is too old.
            heard_ms: By partition number, the append time up to which any point would have been read. A partition that
                is missing here may be silent for another reason than its series having ended.
            outages: Outages of partitions of topics that have grown, which do not count as silence.

        Returns:
            The number of removed series, and the inputs' series numbers that may be forgotten.
        """
        with self._lock:
            limits, heard = self._by_partition(oldest_ms), self._by_partition(heard_ms)
            series, used = self._slots.series, self._slots.used
            growth = Growth(self._growth, outages)
            gone = outlived(series, used, limits, heard, growth, self._rules)
            outcome = self._remove(gone, lambda wires: wires.seen_before(limits))
            if withdraw(series, used, growth, heard, self._rules):
                self._changed(membership=True)
            return outcome

    def end_keys(self, keys: Sequence[int]) -> tuple[int, Forgotten]:
        """Remove the series whose newest point came in a message with one of the ended keys.

        The series about a producer without any series left are removed as well: it has not fallen silent, it has ended.

        Args:
            keys: Hashes of the keys, as in `MessageColumns`.

        Returns:
            The number of removed series, and the inputs' series numbers that may be forgotten.
        """
        ended: Int64Array = np.array(keys, np.int64)
        with self._lock:
            series, used = self._slots.series, self._slots.used
            gone = (series.state[:used] != FREE) & np.isin(series.key_hash[:used], ended)
            seen = [wires.columns.producer[wires.seen_under(ended)] for wires in self._wires.values()]
            producers = np.unique(np.concatenate(seen)) if seen else np.empty(0, np.int32)
            outcome = self._remove(gone, lambda wires: wires.seen_under(ended))
            if self._heartbeats is not None and len(producers):
                self._withdraw_ended(self._heartbeats, producers)
        return outcome

    def judge_producers(self, reference_ms: Mapping[int, int]) -> None:
        """Update which producers are up, and count refused series by producer; called about once a second.

        Args:
            reference_ms: By partition number, the time of Kafka's clock, as from `SeriesAges.reference_ms`.
        """
        heartbeats = self._heartbeats
        self._may_sweep_full_table = True
        if heartbeats is None:
            return
        with self._lock:
            survey = ProducerIndex.empty(self.producers.used, self._writers.used)
            for wires in self._wires.values():
                self.producers.survey(wires.columns, survey)
            self._survey = survey
            heartbeats.targets.keep(survey.alive)
            self._changed(membership=heartbeats.announce())
        for _ in range(MAX_HEARTBEAT_BATCHES):
            with self._lock:  # released between batches, so that a scrape does not wait for a whole fleet
                self._changed(membership=heartbeats.beat(self._by_partition(reference_ms), self._exposed))
            if not heartbeats.has_more:
                return

    def are_refused(self, numbers: Int32Array, source: IdentitySource, reason: int) -> BoolArray:
        """Return a mask: True for each of an input's series numbers that is refused for a reason of `columns`."""
        refused: BoolArray = self._wires[id(source)].columns.slot[numbers] == -reason
        return refused

    def take_conflicts(self) -> Conflicts:
        """Return the signs since the last call that live producers share an identity."""
        with self._lock:
            return self.producers.take_conflicts()

    def take_ahead(self) -> list[tuple[tuple[str, str], int]]:
        """Return by job and instance the number of points since the last call that lay in the future."""
        with self._lock:
            return self.producers.take_ahead()

    def occupancy(self) -> Occupancy:
        """Return the use of the limits, and the numbers of series refused by limits and conflicts."""
        with self._lock:
            return Occupancy.of(self._slots, self.producers, self._survey, self._exemplars.dropped)

    def snapshot(self, view: SeriesView = ALL) -> StoreSnapshot:
        """Return a consistent copy of the exposed series of a view; a histogram is copied whole or not at all."""
        with self._lock:
            layout = self._layouts.of(view, self._slots, self._exposed)
            return StoreSnapshot.take(layout, self._slots, self.version, self._exemplars.by_slot())

    def states(self) -> dict[str, int]:
        """Return the numbers of series that are exposed, catching up, held and absent; a histogram counts as one."""
        with self._lock:
            return states_of(self._slots.series, self._slots.used, self._exposed)

    @property
    def lines(self) -> int:
        """Lines of all stored series together; `SeriesLimits.series` is their limit."""
        return self._slots.lines

    def _changed(self, *, membership: bool) -> None:
        self.version += 1
        if membership:
            self._layouts.clear()

    def _by_partition(self, times_ms: Mapping[int, int]) -> Int64Array:
        """Return times by partition number, 0 if absent; the last item is for series without a partition."""
        array: Int64Array = np.zeros(len(self._exposed) + 1, np.int64)
        for partition, time_ms in times_ms.items():
            array[partition] = time_ms
        return array

    def _ensure_partitions(self, needed: int) -> None:
        if needed > len(self._exposed):
            more: UInt8Array = np.zeros(needed * 2 - len(self._exposed), np.uint8)
            self._exposed = np.concatenate([self._exposed, more])
            self._growth = np.concatenate([self._growth, more])

    def _tables(self, wires: Wires) -> Tables:
        producers, writers = self.producers.columns, self._writers.columns
        return Tables(self._slots.series, wires.columns, producers, writers, self._exposed, self._growth)

    def _admitted(self, source: IdentitySource, columns: Sequence[Int32Array], messages: MessageColumns) -> Wires:
        """Return an input's series numbers, each of some points' with a slot or the reason why it has none."""
        with self._lock:
            wires = self._wires.get(id(source)) or self._wires.setdefault(id(source), Wires(source))
            wires.make_room(max((int(column.max()) for column in columns if len(column)), default=-1))
            self._ensure_partitions(int(messages.partition.max(initial=-1)) + 1)
        for unknown in map(wires.unknown, columns):
            for begin in range(0, len(unknown), NEW_SERIES_PER_LOCK):
                chunk = unknown[begin : begin + NEW_SERIES_PER_LOCK]
                arrivals = wires.arrivals(chunk, self._translator)
                with self._lock:
                    self._admit(wires, chunk, arrivals)
        return wires

    def _admit(self, wires: Wires, numbers: Int32Array, arrivals: NewSeries) -> None:
        """Assign slots to new series numbers, or record the reason for refusal."""
        columns, origin = wires.columns, arrivals.origin
        if self._may_sweep_full_table and self.producers.lacks_room_for(one.producer for one in arrivals.origins):
            self._may_sweep_full_table = False
            self._sweep_producers()
        columns.slot[numbers] = -arrivals.refused
        columns.producer[numbers] = UNLISTED_PRODUCER
        placed = numbers[arrivals.refused == PLACED]
        series = np.bincount(origin, minlength=len(arrivals.origins)).tolist()
        pairs = zip(arrivals.origins, series, strict=True)
        producers = np.array([self.producers.number(origin.producer, count) for origin, count in pairs], np.int32)
        writers = np.array([self._writers.number(one.writer, one.host) for one in arrivals.origins], np.int32)
        slots = self._slots.admit(arrivals, producers[origin])
        self._leave(self._slots.renamed)
        columns.slot[placed] = slots
        columns.writer[placed] = writers[origin]
        columns.producer[placed] = producers[origin]
        columns.cumulative[placed] = np.array([heading.cumulative for heading in arrivals.headings])[arrivals.heading]
        if self._heartbeats is not None:
            kept = np.unique(origin[slots >= 0]).tolist()
            for i in kept:
                self._heartbeats.targets.note(int(producers[i]), int(writers[i]), arrivals.origins[i].target)

    def _leave(self, renamed: Int32Array) -> None:
        """Refuse the series whose slots went to another metric."""
        if len(renamed):
            for wires in self._wires.values():
                wires.refuse(renamed, NAME_CONFLICT)
            self._exemplars.forget(renamed.astype(np.intp))
            self._changed(membership=True)

    def _store_histograms(
        self, wires: Wires, points: HistogramPoints, messages: MessageColumns, counts: Int64Array
    ) -> None:
        at, end = 0, len(points.series)
        slots, tables = self._slots, self._tables(wires)
        while at < end:
            schemas, blocks = slots.schemas.arrays, slots.blocks.counts
            at = store_histograms(tables, points, messages, self._rules, schemas, blocks, at, counts)
            if at < end:
                bounds, words = bounds_and_words(points, at)
                outcome = slots.rebound(int(wires.columns.slot[points.series[at]]), bounds, words)
                if outcome != STORED:
                    counts[outcome] += 1
                    at += 1

    def _remove(self, gone: BoolArray, unseen: Callable[[Wires], BoolArray]) -> tuple[int, Forgotten]:
        slots = np.flatnonzero(gone)
        forgotten = [(wires.source, wires.forget(gone, unseen(wires))) for wires in self._wires.values()]
        theirs = int(np.count_nonzero(self._slots.series.writer[slots] != OWN))
        if len(slots):
            if self._heartbeats is not None:
                self._heartbeats.freed(slots)
            self._exemplars.forget(slots)
            self._slots.free(slots)
            for wires in self._wires.values():
                wires.try_refused_again(len(slots))
            self._sweep()
            self._changed(membership=True)
        return theirs, [(source, numbers) for source, numbers in forgotten if len(numbers)]

    def _withdraw_ended(self, heartbeats: Heartbeats, producers: Int32Array) -> None:
        """Remove the series about those producers that no series number of any input refers to."""
        left: BoolArray = np.zeros(self.producers.used, np.bool_)
        for wires in self._wires.values():
            left[wires.columns.producer[wires.columns.partition >= 0]] = True
        if heartbeats.withdraw(producers[~left[producers]]):
            self._changed(membership=True)

    def _sweep(self) -> None:
        """Free the numbers of writers and producers without series."""
        if self._writers.overgrown:
            self._writers.sweep(self._in_use("writer", self._writers.used))
        if self.producers.overgrown:
            self._sweep_producers()

    def _sweep_producers(self) -> None:
        in_use = self._in_use("producer", self.producers.used)
        if self._heartbeats is not None:
            in_use |= self._heartbeats.known_producers
        gone = self.producers.sweep(in_use)
        if self._heartbeats is not None:
            self._heartbeats.forget(gone)

    def _in_use(self, column: str, numbers: int) -> BoolArray:
        in_use: BoolArray = np.zeros(numbers, np.bool_)
        series, used = self._slots.series, self._slots.used
        in_use[getattr(series, column)[:used][series.state[:used] != FREE]] = True
        for wires in self._wires.values():
            columns = wires.columns
            known = (columns.slot != -UNKNOWN) | (columns.partition >= 0)  # without a slot: to be admitted again
            in_use[getattr(columns, column)[known]] = True
        return in_use
