"""Adoption of totals: a series that moves to the partition of another replica keeps its total; see `Deltas.upkeep`.

After partitions were added to a topic, a series may continue in a partition of another replica. To that replica the
series is new. It reads the total of the former owner from that owner's snapshot, and adds it.

Invariants:

* Two totals that are added count different points, see `joining`.
* We add to an exposed total only to fill a gap.
"""

# Example, in seconds of Kafka's clock. Replica A owns partition 0 of a topic; partition 1 is added, and B owns it.
#
#    90  A reads the series' last point in partition 0. Its total there is 50.
#   105  The next point, 3, comes in partition 1. To B the series is new: its total is 3, PENDING, and not exposed.
#   150  The series has had no point in partition 0 for `hold_seconds`, 60: A withdraws it. A's snapshot has the 50.
#   180  Another point, 4: B's total is 7, and overdue, because the series has stayed for more than 60 s and
#        READ_SECONDS (without this point it would be overdue at 195, `RETURN_MS` later). B reads A's snapshot: the 50
#        ends at 90, before 105 (`precedes`), so it counts other points. B's total becomes 57, and is exposed.
#
# Words:
#   withdraw  To expose a series no longer, because it has had no point here for the hold; `series.held` does it.
#   hold      `hold_seconds`: the shortest time after which a former owner has withdrawn a series.
#   PENDING   A total that may continue one of another replica: points are added to it, but it is not exposed.
#   overdue   A PENDING total that is older than the hold: its former owner may be asked.
#   RESTING   A total whose series has ended, or has left for another replica.
#   gap       An interval without points within a total, see `sequence`.
#   visit     A PENDING total that another replica counted while the series was away from here; it lies in a gap.
#   reserved  This replica's own former total of a series that is PENDING here now.
#
# A total that began in a grown topic is PENDING. It is exposed when it is overdue, and
#   1. the snapshots of the topic's other replicas cover every message that was written before it began (`_behind`),
#   2. their replicas have had `_withdrawal_ms` since then to withdraw the series, and
#   3. none of them has a newer point of the series: then the series has returned, and the total stays PENDING.
# It waits for 1 and 2 for one time-to-live at most. A partition that Kafka says nothing of counts as behind.
#
# Then `_continue` adds the newest total that ends before this one begins; if that one is PENDING too, also the total
# before it. It may be a reserved one: the series had ended here, or this replica has taken the former
# partition over. A reserved total is not added earlier, because another replica may have continued it. If there is no
# former total, the series is new.
#
# If a topic grows twice within seconds, a series may visit another replica and return. The first replica then has a
# total with a gap, and the second one a visit. The first replica adds the visit, once the snapshot with it covers every
# message that was written before the return (`_visits`). The second replica never exposes it, see 3. After a stay that
# is longer than the hold, the second replica has added the total of the first one, and may have exposed it. So the
# total of the first one begins again, PENDING, as if the series had ended there (`Accumulator`).
#
# A former owner that fails leaves its partition, with its snapshot, to another replica. Totals of one series that meet
# in that way are joined by the same rules, `joining.restore`.

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import numpy as np
import structlog

from kernelcast.bridge.clock import Clock
from kernelcast.bridge.delta.columns import NOTHING, PENDING, RESTING
from kernelcast.bridge.delta.former import AdoptedTotal, SnapshotTable, former_totals
from kernelcast.bridge.delta.joining import adopt, alone, fill, precedes
from kernelcast.bridge.delta.persistence.background import SnapshotReads
from kernelcast.bridge.delta.persistence.snapshot import TotalsSnapshot
from kernelcast.bridge.delta.rows import TotalRows
from kernelcast.bridge.partitions.growth import EXPIRIES_PER_TTL
from kernelcast.bridge.partitions.partition import Key
from kernelcast.bridge.tables.columns import Int64Array
from kernelcast.wire.errors import WireError

READ_SECONDS: Final = 10.0
"""Interval between two reads of other replicas' snapshots, and between two writes while a topic has grown recently."""
RETURNS_HOLDS: Final = 2
"""Other replicas' snapshots are searched for points in a gap for one time-to-live, and as many holds, after it."""
RETURN_MS: Final = round(2 * READ_SECONDS * 1e3)
"""Time in which another replica's snapshot with a point is written and read."""
QUIET_MS: Final = 10_000
"""Time without a message of a series in a partition that it has left after which none is expected there."""
DELIVERY_MS: Final = 1_000
"""Time that a message of a series may take longer to Kafka than the newest one of the series."""

OffsetsSince = Callable[[Sequence[Key], int], Mapping[Key, int] | None]
"""Returns the first offset of each partition at or after a time in milliseconds; without the partitions for which Kafka
does not answer, None if no query may be made now."""


class Adoption:
    """Finds the former totals of pending rows in other replicas' snapshots. Only the consuming thread uses it."""

    def __init__(
        self, rows: TotalRows, reads: SnapshotReads, clock: Clock, *, hold_seconds: float, ttl_seconds: float
    ) -> None:
        """Start with nothing pending.

        Args:
            rows: The totals.
            reads: Read the snapshots of other replicas.
            clock: Schedules the reads.
            hold_seconds: Shortest time after which a former owner has withdrawn a series.
            ttl_seconds: Longest time for which a total waits for a former owner that lags.
        """
        self._rows, self._reads, self._clock = rows, reads, clock
        self._hold_ms = round((hold_seconds + READ_SECONDS) * 1e3)  # by then its last total has been written
        self._ttl_ms = round(ttl_seconds * 1e3)
        # A replica that has caught up withdraws series at its next expiry, and writes its snapshot READ_SECONDS later.
        self._withdrawal_ms = self._ttl_ms // EXPIRIES_PER_TTL + round(READ_SECONDS * 1e3)
        self._lagged_ms: dict[Key, int] = {}  # by partition behind us, the newest append time when it was so last
        self._due = 0.0
        self._topics: set[str] = set()  # of the last read that was started
        self._log = structlog.stdlib.get_logger("bridge.delta")

    def continue_totals(
        self,
        owned: Mapping[Key, int],
        others: Collection[Key],
        topic_ids: Mapping[str, str],
        newest_append_ms: int,
        grown: Collection[int],
        offsets_since: OffsetsSince,
    ) -> None:
        """Add former totals to pending rows, and expose the rows that have waited long enough.

        Args:
            owned: Our partitions and their numbers.
            others: Partitions of other replicas.
            topic_ids: Kafka's ids of topics.
            newest_append_ms: The newest append time known.
            grown: Numbers of our partitions of topics that have grown.
            offsets_since: Finds offsets by time.
        """
        self._forget_reserved()
        found, now_seconds = self._reads.take(), self._clock.monotonic()
        overdue, gapped = self._overdue(newest_append_ms), self._gapped(grown)
        if found is None and now_seconds >= self._due and len(overdue) + len(gapped):
            self._due = now_seconds + READ_SECONDS
            topic_of = {number: topic for (topic, _), number in owned.items()}
            numbers = self._rows.columns.partition[np.concatenate([overdue, gapped])]
            topics = {topic_of.get(number, "") for number in numbers.tolist()}
            if self._reads.begin((key for key in others if key[0] in topics), topic_ids):
                self._topics = topics
            found = self._reads.take()
        if found is None:
            return
        # A partition that has been assigned to this bridge since then has been restored, with its totals.
        present = {key: one for key, one in found.items() if key in others and one.matches_topics(topic_ids)}
        read = [number for (topic, _), number in owned.items() if topic in self._topics]
        overdue, gapped = (rows[np.isin(self._rows.columns.partition[rows], read)] for rows in (overdue, gapped))
        behind = self._behind(present, overdue, newest_append_ms, offsets_since)
        topics = {topic for topic, _ in behind}
        delayed = [number for (topic, _), number in owned.items() if topic in topics]
        elsewhere = former_totals(self._rows, np.concatenate([overdue, gapped]), present, behind)
        visits = self._visits(gapped, elsewhere, present, newest_append_ms, offsets_since)
        self._join(elsewhere, self._ready(overdue, elsewhere, delayed, newest_append_ms), visits)

    def give_up(self, rows: Int64Array) -> None:
        """Expose pending totals, with the replica's own former total or without one."""
        columns, reserved = self._rows.columns, self._rows.reserved
        for row in rows[columns.flags[rows] & PENDING != 0].tolist() if reserved else ():
            former = reserved.pop(columns.digest[row].tobytes(), None)
            if former:
                adopt(self._rows, row, alone(former, 0), reserved=True)
        columns.flags[rows] &= np.uint8(255 - PENDING)

    def _forget_reserved(self) -> None:
        """Forget the replica's own former totals of series that are not pending."""
        rows, flags = self._rows, self._rows.columns.flags
        known = [
            digest for digest in rows.reserved if (row := rows.find(digest)) == NOTHING or not flags[row] & PENDING
        ]
        for digest in known:
            del rows.reserved[digest]

    def _behind(
        self,
        present: Mapping[Key, TotalsSnapshot],
        overdue: Int64Array,
        newest_append_ms: int,
        offsets_since: OffsetsSince,
    ) -> set[Key]:
        """Return the partitions whose snapshot may lack messages that were written before overdue totals began.

        A partition stays in the set for `_withdrawal_ms` after it last lagged, or Kafka last did not answer for it.
        """
        if len(overdue) and present:
            needed = offsets_since(list(present), int(self._rows.columns.moved_ms[overdue].max()))
            if needed is None:
                return set(present)
            lagging = [key for key, snapshot in present.items() if not _covers(snapshot, key, needed)]
            self._lagged_ms |= dict.fromkeys(lagging, newest_append_ms)
        since_ms = newest_append_ms - self._withdrawal_ms
        self._lagged_ms = {key: lagged_ms for key, lagged_ms in self._lagged_ms.items() if lagged_ms > since_ms}
        return set(self._lagged_ms)

    def _ready(
        self,
        overdue: Int64Array,
        elsewhere: Mapping[int, Sequence[AdoptedTotal]],
        delayed: Sequence[int],
        newest_append_ms: int,
    ) -> list[int]:
        """Return the overdue totals that do not have to wait for a former owner that lags.

        Args:
            overdue: Rows of the overdue totals.
            elsewhere: By row, the totals of its series on other replicas.
            delayed: Numbers of our partitions of topics in which another replica is behind.
            newest_append_ms: The newest append time known.
        """
        columns = self._rows.columns
        may_wait = columns.moved_ms[overdue] >= newest_append_ms - self._ttl_ms
        may_wait &= np.isin(columns.partition[overdue], delayed)
        waiting = {row for row in overdue[may_wait].tolist() if not _is_covered(elsewhere.get(row, []))}
        return [row for row in overdue.tolist() if row not in waiting]

    def _visits(
        self,
        gapped: Int64Array,
        elsewhere: Mapping[int, Sequence[AdoptedTotal]],
        present: Mapping[Key, TotalsSnapshot],
        newest_append_ms: int,
        offsets_since: OffsetsSince,
    ) -> Mapping[int, list[AdoptedTotal]]:
        """Return, by row with a gap, the pending totals of snapshots that have all points of the gap.

        They cover everything before the series returned. Messages that came later, because their partition had no
        leader, have all come once none has for `QUIET_MS`. A total is added once: if it were added before, the points
        that its replica had not written yet would be lost.
        """
        complete_ms: dict[int, int] = {}
        for row in gapped.tolist():
            visits_ms = [one.get("append_ms") for one in elsewhere.get(row, ()) if _is_visit(one)]
            if visits_ms and (ms := self._complete_ms(row, max(visits_ms))) <= newest_append_ms:
                complete_ms[row] = ms
        if not complete_ms:
            return {}
        returned: Int64Array = np.array(list(complete_ms), np.int64)
        needed = offsets_since(list(present), max(complete_ms.values())) or {}
        covering = {key: snapshot for key, snapshot in present.items() if _covers(snapshot, key, needed)}
        found = former_totals(self._rows, returned, covering, ())
        return {row: [one for one in kept if _is_visit(one)] for row, kept in found.items()}

    def _complete_ms(self, row: int, visited_ms: int) -> int:
        """Return the append time before which all messages of a row's newest gap came, given that of the newest one."""
        columns = self._rows.columns
        since_ns = columns.last_ns[row] - self._rows.gaps.end_ns[columns.gap[row]]
        returned_ms = int(columns.append_ms[row] - since_ns // 1_000_000) + DELIVERY_MS
        return returned_ms if visited_ms <= returned_ms else visited_ms + QUIET_MS

    def _join(
        self,
        elsewhere: Mapping[int, list[AdoptedTotal]],
        overdue: Sequence[int],
        visits: Mapping[int, list[AdoptedTotal]],
    ) -> None:
        """Add the totals of snapshots to rows that wait for them."""
        continued = sum(self._continue(row, elsewhere.get(row, [])) for row in overdue)
        continued += sum(
            sum(_joined(self._rows, row, visit, fills=True) for visit in kept) > 0 for row, kept in visits.items()
        )
        if continued:
            self._log.info("totals of delta series continued from other replicas", series=continued)

    def _overdue(self, newest_append_ms: int) -> Int64Array:
        """Return pending totals that have waited long enough, except those whose series has ended.

        A series without a point after the hold may have returned to its former owner. So its total waits until that
        owner's snapshot would show this.
        """
        rows, columns = self._rows.in_use(), self._rows.columns
        pending: Int64Array = rows[(columns.flags[rows] & (PENDING | RESTING)) == PENDING]
        if not len(pending):
            return pending
        stays = columns.append_ms[pending] - columns.moved_ms[pending] > self._hold_ms
        patience_ms = self._hold_ms + np.where(stays, 0, RETURN_MS)
        overdue: Int64Array = pending[columns.moved_ms[pending] < newest_append_ms - patience_ms]
        return overdue

    def _gapped(self, grown: Collection[int]) -> Int64Array:
        """Return exposed totals of grown topics that have a recent gap."""
        if not grown:
            return np.empty(0, np.int64)
        rows, columns = self._rows.in_use(), self._rows.columns
        rows = rows[(columns.gaps[rows] > 0) & ((columns.flags[rows] & (PENDING | RESTING)) == 0)]
        rows = rows[np.isin(columns.partition[rows], list(grown))]
        age_ns = columns.last_ns[rows] - self._rows.gaps.end_ns[columns.gap[rows]]
        lately: Int64Array = rows[age_ns <= (self._ttl_ms + RETURNS_HOLDS * self._hold_ms) * 1_000_000]
        return lately

    def _continue(self, row: int, elsewhere: list[AdoptedTotal]) -> bool:
        """Add former totals to a pending one, unless its series continues elsewhere; returns whether one was added."""
        columns = self._rows.columns
        if any(one.get("append_ms") > columns.append_ms[row] for one in elsewhere):
            return False
        adopted = False
        own = self._rows.reserved.get(digest := columns.digest[row].tobytes())
        left = [*elsewhere, AdoptedTotal(SnapshotTable(own), 0, behind=False)] if own else elsewhere
        for former in sorted(left, key=lambda one: one.get("last_ns"), reverse=True):
            of = former.snapshot.columns
            if columns.flags[row] & PENDING and precedes(of, former.i, int(columns.start_ns[row])):
                if of is own:
                    del self._rows.reserved[digest]
                adopted |= _joined(self._rows, row, former, reserved=of is own and not adopted)
        self.give_up(np.array([row]))
        return adopted


def _covers(snapshot: TotalsSnapshot, key: Key, needed: Mapping[Key, int]) -> bool:
    """Return whether a snapshot reaches the offset that is needed; False if Kafka did not answer for the partition."""
    return key in needed and dict(snapshot.positions).get(key, 0) >= needed[key]


def _is_visit(one: AdoptedTotal) -> bool:
    """Return whether a total may have been counted while its series was on another replica for a while."""
    return bool(one.get("flags") & PENDING)


def _is_covered(elsewhere: Sequence[AdoptedTotal]) -> bool:
    """Return whether a series has totals on other replicas, and all of them count what came before its move."""
    return bool(elsewhere) and not any(one.behind for one in elsewhere)


def _joined(rows: TotalRows, row: int, former: AdoptedTotal, *, reserved: bool = False, fills: bool = False) -> bool:
    """Add a former total, or one that lies in a gap; a damaged snapshot of another bridge costs only this addition."""
    try:
        table, at = former.snapshot.row(former.i)
    except WireError:
        return False
    return fill(rows, row, table, at) if fills else adopt(rows, row, table, at, reserved=reserved)
