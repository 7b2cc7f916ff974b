"""Converts the delta points of a batch to cumulative points; all other points pass unchanged.

`Deltas.accumulate` calls it for each batch, between decoding and the store. Each delta series has a row in `TotalRows`;
`_of_wire` maps an input's series numbers to rows. `sequence` decides which points count, `addition` adds them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.delta.addition.histograms import add_histograms
from kernelcast.bridge.delta.addition.incoming import DeltaHistogramPoints, sound_histograms
from kernelcast.bridge.delta.addition.sums import NumberTotals, add_numbers
from kernelcast.bridge.delta.columns import (
    FIRST,
    FORGOTTEN_GAPS,
    FREE,
    GROWN_TOPIC,
    MONOTONIC,
    NOT_DELTA,
    NOTHING,
    OUTCOMES,
    PART_OF_TOPIC,
    PASSED,
    REFUSED,
    RESTING,
    SCATTERED,
    UNSEEN,
)
from kernelcast.bridge.delta.joining import reserve
from kernelcast.bridge.delta.late import ReservedRow, as_rows, reserve_again
from kernelcast.bridge.delta.persistence.freeze import Columns, freeze, one_by_one
from kernelcast.bridge.delta.producers import DeltaProducers
from kernelcast.bridge.delta.rows import TotalRows, digest
from kernelcast.bridge.delta.sequence import Incoming, Order, Standing, sequence
from kernelcast.bridge.inputs import IdentitySource
from kernelcast.bridge.tables.columns import Int32Array, Int64Array, MessageColumns, UInt8Array, grown
from kernelcast.bridge.tables.exponential import MAX_BUCKETS
from kernelcast.columnar import Decoded, HistogramColumns, NumberColumns, SeriesIdentity, Temporality

KEPT_WORDS: Final = 4096
"""Smallest output buffer for buckets, in 64-bit words."""
NEVER_MS: Final = 2**62
"""Longer than any silence, so that no other replica counts as having continued a total."""


@runtime_checkable
class KnowsDeltas(Protocol):
    """An input that recognises delta series without parsing their identities."""

    def deltas(self, numbers: Int32Array) -> NDArray[np.bool_]:
        """Returns a mask: True for each series number that belongs to a delta series."""
        ...


class Accumulator:
    """Keeps the running totals of delta series and adds points to them. Only the consuming thread uses it.

    Attributes:
        rows: The totals.
        producers: Lost points by producer.
        positions: By partition number, the offset up to which its totals include all messages. Points of messages
            below this offset are not added again.
        scopes: By partition number, WHOLE_TOPIC, PART_OF_TOPIC or GROWN_TOPIC.
    """

    def __init__(self, order: Order, *, max_series: int, away_ms: int = NEVER_MS) -> None:
        """Start without totals.

        Args:
            order: Limits by which points are put in order.
            max_series: Largest number of delta series. Points of further series are refused and counted.
            away_ms: Longest time without a point in which no other replica can have continued a total of a grown topic.
        """
        self._order, self._away_ms = order, away_ms
        self._of_wire: dict[IdentitySource, Int32Array] = {}
        self.rows = TotalRows(max_series)
        self.producers = DeltaProducers()
        self.positions: Int64Array = np.zeros(16, np.int64)
        self.scopes: UInt8Array = np.zeros(16, np.uint8)

    def accumulate(
        self, decoded: Decoded, messages: MessageColumns, source: IdentitySource
    ) -> tuple[Decoded, Int64Array]:
        """Convert delta points to cumulative points.

        Args:
            decoded: A batch.
            messages: Partition, offset and append time of each message.
            source: The input that decoded it.

        Returns:
            The same points at the same indices, with totals in place of deltas, and without a value where there is no
            total; and the number of points by outcome code, of shape (PASSED + 1,).
        """
        counts: Int64Array = np.zeros(PASSED + 1, np.int64)
        numbers, histograms = decoded.numbers, decoded.histograms
        rows = self._look_up(source, numbers.series)
        if rows is not None:
            outcomes, numbers = self._numbers(rows, numbers, messages)
            counts += self._counted(source, numbers.series, outcomes)
        rows = self._look_up(source, histograms.series)
        if rows is not None:
            outcomes, histograms = self._histograms(rows, histograms, messages)
            counts += self._counted(source, histograms.series, outcomes)
        if numbers is decoded.numbers and histograms is decoded.histograms:
            return decoded, counts
        return replace(decoded, numbers=numbers, histograms=histograms), counts

    def forget(self, source: IdentitySource, numbers: Iterable[int] | Int32Array) -> None:
        """Forget series numbers: the input may give them to other series from now on."""
        of_wire = self._of_wire.get(source)
        if of_wire is not None:
            known = np.asarray(numbers, np.int32)
            of_wire[known[known < len(of_wire)]] = UNSEEN
            self.producers.forget(source, known)

    def free(self, rows: Int64Array) -> None:
        """Drop totals. If such a series returns, its total restarts at 0."""
        self.rows.free(rows)

    def expired(self, oldest_ms: Mapping[int, int], kept_ms: int = 0) -> Int64Array:
        """Mark rows of ended series as resting; return the rows that have rested long enough to be dropped.

        A series has ended when it was last seen before its partition's limit. An ended row without a total does not
        rest. A scattered row is returned once it has ended, or has stayed in one partition since the limit. Where a
        series may come from any partition, no row is scattered, even if a snapshot of a former revision says so.

        Args:
            oldest_ms: By partition number, the append time before which a series is too old.
            kept_ms: How long rows rest.
        """
        columns, used = self.rows.columns, self.rows.used
        limits: Int64Array = np.zeros(len(self.positions) + 1, np.int64)
        for partition, oldest in oldest_ms.items():
            limits[partition] = oldest
        limit = limits[columns.partition[:used]]
        held, scattered = columns.kind[:used] != FREE, (columns.flags[:used] & SCATTERED) != 0
        ended = held & (columns.append_ms[:used] < limit)
        columns.flags[:used][ended] |= np.uint8(RESTING)
        rested = ended & ((columns.append_ms[:used] < limit - kept_ms) | (columns.last_ns[:used] == NOTHING))
        scattered &= self._order.settle_ms > 0
        settled = held & scattered & ((columns.moved_ms[:used] < limit) | ended)
        return np.flatnonzero(rested | settled)

    def at(self, partition: int, offset: int) -> None:
        """Set the offset up to which a partition's totals include all messages."""
        self._make_room_for(partition)
        self.positions[partition] = offset

    def set_scope(self, partition: int, scope: int) -> int:
        """Set which partitions of a partition's topic are read, see `Standing`; returns the previous value."""
        self._make_room_for(partition)
        before = int(self.scopes[partition])
        self.scopes[partition] = scope
        return before

    def follow_explained_moves(self) -> None:
        """Add points again to scattered rows whose moves are no sign of messages without a key, see `scattered`.

        This replica may learn that a topic has grown, or take its other partitions over, after it has scattered a row.
        """
        columns = self.rows.columns
        rows = np.flatnonzero(columns.flags[: self.rows.used] & SCATTERED)
        explained = rows[self.scopes[columns.partition[rows]] != PART_OF_TOPIC]
        columns.flags[explained] &= np.uint8(255 - SCATTERED)

    def _make_room_for(self, partition: int) -> None:
        missing = 2 * partition - len(self.positions)
        if partition >= len(self.positions):
            self.positions = np.append(self.positions, np.zeros(missing, np.int64))
            self.scopes = np.append(self.scopes, np.zeros(missing, np.uint8))

    @property
    def forgotten_gaps(self) -> int:
        """Number of gaps dropped because the gap table was full, since the start."""
        return int(self.rows.gaps.control[FORGOTTEN_GAPS])

    def _look_up(self, source: IdentitySource, numbers: Int32Array) -> Int32Array | None:
        """Return the row of each point; None if no point is a delta."""
        if not len(numbers):
            return None
        self._forget_freed()
        of_wire = self._of_wire.get(source)
        highest = int(numbers.max())
        if of_wire is None or highest >= len(of_wire):
            known = 0 if of_wire is None else len(of_wire)
            longer: Int32Array = np.full(grown(known, highest + 1), UNSEEN, np.int32)
            if of_wire is not None:
                longer[:known] = of_wire
            of_wire = self._of_wire[source] = longer
        rows: Int32Array = of_wire[numbers]
        unseen = rows == UNSEEN
        if unseen.any():
            fresh = np.unique(numbers[unseen])
            self._give_up_resting(len(fresh), rows)
            self._meet(source, of_wire, fresh)
            rows = of_wire[numbers]
        return rows if (rows != NOT_DELTA).any() else None

    def _give_up_resting(self, needed: int, in_use: Int32Array) -> None:
        """Make room for new series by dropping resting totals, the one that has rested longest first.

        Rows in `in_use` are kept, because points of the present batch refer to them.
        """
        missing = len(self.rows) + needed - self.rows.most
        if missing <= 0:
            return
        columns, used = self.rows.columns, self.rows.used
        resting = (columns.kind[:used] != FREE) & ((columns.flags[:used] & RESTING) != 0)
        resting[in_use[in_use >= 0]] = False
        rows = np.flatnonzero(resting)
        self.free(rows[np.argsort(columns.append_ms[rows], kind="stable")][:missing])
        self._forget_freed()

    def _forget_freed(self) -> None:
        """Look series numbers up again whose rows were freed, and those that found no room.

        After it no series number refers to a freed row, whichever code freed it.
        """
        if not self.rows.freed:
            return
        gone = np.zeros(self.rows.used, np.bool_)
        gone[list(self.rows.freed)] = True
        self.rows.freed.clear()
        for of_wire in self._of_wire.values():
            held = of_wire >= 0
            held[held] = gone[of_wire[held]]
            of_wire[held | (of_wire == REFUSED)] = UNSEEN

    def _meet(self, source: IdentitySource, of_wire: Int32Array, numbers: Int32Array) -> None:
        """Classify new series numbers and assign a row to each delta series."""
        of_wire[numbers] = NOT_DELTA
        likely = numbers[source.deltas(numbers)] if isinstance(source, KnowsDeltas) else numbers
        for number in likely.tolist():
            identity = source.identity(number)
            if isinstance(identity, SeriesIdentity) and identity.temporality is Temporality.DELTA:
                row = self.rows.admit(digest(identity), identity)
                of_wire[number] = REFUSED if row == NOTHING else row
                self.producers.learn(source, number, identity)

    def _judge(self, incoming: Incoming, reserved_rows: Sequence[ReservedRow]) -> tuple[UInt8Array, Int64Array]:
        self.rows.make_room_for_gaps(len(incoming.row))
        former = self._former(incoming, reserved_rows)
        times: Int64Array = np.zeros(len(incoming.row), np.int64)
        standing = Standing(self.positions, self.scopes)
        outcomes = sequence(self.rows.columns, self.rows.gaps, incoming, standing, self._order, times)
        for row in former.keys() & set(incoming.row[outcomes == FIRST].tolist()):
            reserve(self.rows, row, former[row])
        return outcomes, times

    def quiet(self, number: int, newest_append_ms: int) -> Int64Array:
        """Return the rows of a partition whose last point is old enough for another replica to have continued them."""
        rows = self.rows.of_partition(number)
        return rows[newest_append_ms - self.rows.columns.append_ms[rows] > self._away_ms]

    def _former(self, points: Incoming, reserved_rows: Sequence[ReservedRow]) -> dict[int, Columns]:
        """Return, by row, the totals of grown topics whose series have points again, as they may begin again, PENDING.

        A series may have ended, or may have been on another replica that has continued its total. Both totals rest. Two
        points of one batch are not compared with each other. A point that begins before the last one ended shows no
        pause: it is read again, or a clock was set back and no other replica has had a point in between. Example: a
        bridge takes two partitions over, and the same batch has old points of the one and new points of the other.
        """
        columns, grown_topics = self.rows.columns, self.scopes == GROWN_TOPIC
        if not grown_topics.any():
            return {}
        grown_topics = np.append(grown_topics, False)
        known = np.unique(points.row[points.row >= 0]).astype(np.int64)
        begin_ns = np.where(points.start_ns == 0, points.time_ns, points.start_ns)
        newer = np.flatnonzero((points.row >= 0) & (begin_ns > columns.last_ns[points.row]))
        continued, first = np.unique(points.row[newer], return_index=True)
        silence_ms = points.append_ms[points.message[newer[first]]] - columns.append_ms[continued]
        away = continued[(silence_ms > self._away_ms) & grown_topics[columns.partition[continued]]]
        away = np.setdiff1d(away, [one.at for one in reserved_rows])  # `as_rows` has done this with them
        columns.flags[away] |= np.uint8(RESTING)
        known = known[grown_topics[columns.partition[known]]]
        resting = known[(columns.flags[known] & RESTING != 0) & (columns.last_ns[known] != NOTHING)]
        numbers = {number: number for number in columns.partition[resting].tolist()}
        return dict(zip(resting.tolist(), one_by_one(freeze(self.rows, resting, numbers)), strict=True))

    def _counted(self, source: IdentitySource, numbers: Int32Array, outcomes: UInt8Array) -> Int64Array:
        """Count points by outcome, of shape (PASSED + 1,), and by producer."""
        self.producers.count(source, numbers, outcomes)
        return np.bincount(outcomes, minlength=PASSED + 1)

    def _numbers(
        self, rows: Int32Array, points: NumberColumns, messages: MessageColumns
    ) -> tuple[UInt8Array, NumberColumns]:
        rows, reserved_rows = as_rows(self.rows, rows, points, messages, self._away_ms)
        flags = self.rows.columns.flags[rows]
        may_fall = ((flags & MONOTONIC) == 0) | (rows < 0)
        sound = (np.isfinite(points.value) & (may_fall | (points.value >= 0))).view(np.uint8)
        outcomes, times = self._judge(_incoming(rows, points, sound, messages), reserved_rows)
        totals = NumberTotals(
            rows,
            points.start_ns.view(np.int64).copy(),
            points.time_ns.view(np.int64).copy(),
            points.value.copy(),
            points.integer.copy(),
            points.flags.copy(),
        )
        add_numbers(self.rows.columns, totals, outcomes, times)
        reserve_again(self.rows, reserved_rows)
        return outcomes, NumberColumns(
            points.series,
            points.message,
            totals.start_ns.view(np.uint64),
            totals.time_ns.view(np.uint64),
            totals.value,
            totals.integer,
            totals.flags,
        )

    def _histograms(
        self, rows: Int32Array, points: HistogramColumns, messages: MessageColumns
    ) -> tuple[UInt8Array, HistogramColumns]:
        rows, reserved_rows = as_rows(self.rows, rows, points, messages, self._away_ms)
        taken = DeltaHistogramPoints.of(rows, points)
        outcomes, times = self._judge(_incoming(rows, points, sound_histograms(taken), messages), reserved_rows)
        out = taken.blank(max(KEPT_WORDS, 2 * max(len(points.positive), len(points.negative), len(points.buckets))))
        scratch: Int64Array = np.zeros(2 * MAX_BUCKETS, np.int64)
        at, needed = 0, 0
        while True:
            at, needed = add_histograms(self.rows.columns, self.rows.words, taken, outcomes, times, out, scratch, at)
            if at == len(rows):
                break
            if needed:
                self.rows.enlarge_block(int(rows[at]), needed)
            else:
                out = out.longer()
        reserve_again(self.rows, reserved_rows)
        return outcomes, out.columns(points)


def _incoming(
    rows: Int32Array, points: NumberColumns | HistogramColumns, sound: UInt8Array, messages: MessageColumns
) -> Incoming:
    return Incoming(
        rows,
        points.message,
        points.start_ns.view(np.int64),
        points.time_ns.view(np.int64),
        points.flags,
        sound,
        messages.partition,
        messages.offset,
        messages.append_ms,
        messages.key_hash,
    )


def named(counts: Int64Array) -> Sequence[tuple[str, int]]:
    """Return (name, count) of each outcome that occurred."""
    return [(name, int(counts[code])) for code, name in OUTCOMES.items() if counts[code]]
