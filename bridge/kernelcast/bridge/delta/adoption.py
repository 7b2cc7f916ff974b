"""Adoption of totals: a series that moves to the partition of another replica keeps its total.

After partitions were added to a topic, a series may continue in a partition of another replica. To that replica the
series is new, and it does not have the total of the former owner. It reads that total from the former owner's snapshot
and adds it.

Invariants: two totals that are added count different points, because the former one ends before the other one begins;
and no exposed total is changed by such an addition. So a total that began in a grown topic is PENDING: points are added
to it, but it is not exposed, until one of these has happened.

* A snapshot of another partition has a total that ends exactly where this one begins: the series came from there.
* The former owner has withdrawn the series by now (`series.held` has the time). Then the newest total that ends before
  this one begins is added. If there is none, the series is new.

A former owner that fails leaves its partition, with its snapshot, to another replica. Totals of one series that meet in
that way are joined by the same rule, `restore`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import structlog
from numpy.typing import NDArray

from kernelcast.bridge.clock import Clock
from kernelcast.bridge.delta.addition.histograms import add_histograms
from kernelcast.bridge.delta.addition.incoming import ROW, DeltaHistogramPoints
from kernelcast.bridge.delta.addition.merging import NO_BUCKETS
from kernelcast.bridge.delta.columns import (
    ADDED,
    DUPLICATE,
    EXPLICIT,
    HAS_SUM,
    INTEGER,
    NOTHING,
    NUMBER,
    PENDING,
)
from kernelcast.bridge.delta.persistence.freeze import freeze, gather_gaps, thaw
from kernelcast.bridge.delta.persistence.snapshot import TotalsSnapshot
from kernelcast.bridge.delta.persistence.state import StateTopic
from kernelcast.bridge.delta.rows import TotalRows
from kernelcast.bridge.delta.sequence import release, remember_all
from kernelcast.bridge.partitions.partition import Key
from kernelcast.bridge.tables.columns import Int64Array, UInt8Array
from kernelcast.bridge.tables.exponential import MAX_BUCKETS
from kernelcast.wire.errors import BrokerError, WireError

Columns = Mapping[str, NDArray[Any]]
"""Columns of a snapshot, by name."""
READ_SECONDS: Final = 10.0
"""Interval between two reads of other replicas' snapshots, and between two writes while a topic has grown recently."""
MAX_JOINED_GAPS: Final = 128
LARGEST_INTEGER: Final = 2**63 - 1
KEPT_WORDS: Final = 4096


class Adoption:
    """Finds the former totals of pending rows in other replicas' snapshots. Only the consuming thread uses it."""

    def __init__(self, rows: TotalRows, state: StateTopic, clock: Clock, *, hold_seconds: float) -> None:
        """Start with nothing pending.

        Args:
            rows: The totals.
            state: The topic to which other replicas write their totals.
            clock: Schedules the reads.
            hold_seconds: Shortest time after which a former owner has withdrawn a series.
        """
        self._rows, self._state, self._clock = rows, state, clock
        self._hold_ms = round(hold_seconds * 1e3)
        self._due = 0.0
        self._log = structlog.stdlib.get_logger("bridge.delta")

    def settle(
        self, owned: Mapping[Key, int], others: Iterable[Key], topic_ids: Mapping[str, str], newest_append_ms: int
    ) -> None:
        """Add former totals to pending rows, and expose the rows that have waited long enough.

        Args:
            owned: Our partitions and their numbers.
            others: Partitions of other replicas.
            topic_ids: Kafka's ids of topics.
            newest_append_ms: The newest append time known.
        """
        pending = self._pending()
        if not len(pending) or self._clock.monotonic() < self._due:
            return
        self._due = self._clock.monotonic() + READ_SECONDS
        topic_of = {number: topic for (topic, _), number in owned.items()}
        topics = {topic_of.get(number, "") for number in self._rows.columns.partition[pending].tolist()}
        snapshots = self._snapshots([key for key in others if key[0] in topics], topic_ids)
        overdue = newest_append_ms - self._rows.columns.moved_ms[pending] > self._hold_ms
        former = _newest_former(self._rows, pending, snapshots)
        adopted = 0
        for row, late in zip(pending.tolist(), overdue.tolist(), strict=True):
            found = former.get(row)
            if found is not None and (late or found.columns.last_ns[0] == self._rows.columns.start_ns[row]):
                adopted += adopt(self._rows, row, found)
        self.give_up(pending[overdue])
        if adopted:
            self._log.info("totals of delta series continued from other replicas", series=adopted)

    def give_up(self, rows: Int64Array) -> None:
        """Expose pending totals, with or without a former total."""
        self._rows.columns.flags[rows] &= np.uint8(255 - PENDING)

    def _pending(self) -> Int64Array:
        rows = self._rows.in_use()
        waiting: Int64Array = rows[(self._rows.columns.flags[rows] & PENDING) != 0]
        return waiting

    def _snapshots(self, keys: list[Key], topic_ids: Mapping[str, str]) -> list[Columns]:
        names = {f"{topic}/{number}": topic for topic, number in keys}
        try:
            found = self._state.read(list(names), lambda _one: True) if names else {}
        except BrokerError as error:
            self._log.warning("totals of other replicas not read", reason=str(error))
            return []
        present = [
            snapshot.columns
            for name, snapshot in found.items()
            if isinstance(snapshot, TotalsSnapshot)
            and snapshot.topic_ids.get(names[name]) == topic_ids.get(names[name], snapshot.topic_ids.get(names[name]))
        ]
        return [columns for columns in present if len(columns["kind"])]


def adopt(rows: TotalRows, row: int, former: TotalRows) -> bool:
    """Add the only total in `former` to the present total of its series; returns whether that was possible."""
    columns, before = rows.columns, former.columns
    kind = int(columns.kind[row])
    if kind != before.kind[0] or before.last_ns[0] > columns.start_ns[row]:
        return False
    if int(columns.integer[row]) + int(before.integer[0]) > LARGEST_INTEGER:
        return False
    if kind == NUMBER:
        _add_number(rows, row, former)
    elif kind == EXPLICIT and not _same_bounds(rows, row, former):
        return False
    else:
        _add_histogram(rows, row, former)
    _join_gaps(rows, row, former)
    rows.columns.start_ns[row] = before.start_ns[0]
    rows.columns.flags[row] &= np.uint8(255 - PENDING)
    return True


def restore(rows: TotalRows, columns: Columns, number_of: Mapping[int, int]) -> int:
    """Restore a snapshot's totals, as `thaw` does; a pending total and the one that ends before it begins are joined.

    Raises:
        WireError: The snapshot has content that no writer produces.
    """
    joins: list[tuple[bytes, TotalRows]] = []
    replaced: list[int] = []
    known = {i: rows.find(columns["digest"][i].tobytes()) for i in range(len(columns["kind"]))} if len(rows) else {}
    for i, row in known.items():
        if row == NOTHING or int(columns["partition"][i]) not in number_of:
            continue
        if rows.columns.flags[row] & PENDING and columns["last_ns"][i] <= rows.columns.start_ns[row]:
            joins.append((columns["digest"][i].tobytes(), _alone(columns, i)))
        elif columns["flags"][i] & PENDING and rows.columns.last_ns[row] <= columns["start_ns"][i]:
            joins.append((columns["digest"][i].tobytes(), _copy(rows, row)))
            replaced.append(row)
    rows.free(np.array(replaced, np.int64))
    restored = thaw(rows, columns, number_of)
    for digest, former in joins:
        adopt(rows, rows.find(digest), former)
    return restored


def _newest_former(rows: TotalRows, pending: Int64Array, snapshots: list[Columns]) -> dict[int, TotalRows]:
    """Return, by pending row, the total with the latest end among those that end before it begins."""
    digests = {rows.columns.digest[row].tobytes(): row for row in pending.tolist()}
    best: dict[int, tuple[int, Columns, int]] = {}
    for columns in snapshots:
        for i, digest in enumerate(map(bytes, columns["digest"])):
            row = digests.get(digest, NOTHING)
            last_ns = int(columns["last_ns"][i])
            if row != NOTHING and best.get(row, (NOTHING,))[0] < last_ns <= rows.columns.start_ns[row]:
                best[row] = (last_ns, columns, i)
    former = {}
    for row, (_, columns, i) in best.items():
        try:
            former[row] = _alone(columns, i)
        except WireError:  # another bridge wrote it: a damaged snapshot costs only this addition
            continue
    return former


def _alone(columns: Columns, i: int) -> TotalRows:
    """Load one total of a snapshot as row 0."""
    chosen = {name: columns[name][i : i + 1] for name in columns if len(columns[name]) == len(columns["kind"])}
    for name, count in (("gap_begin_ns", "gaps"), ("gap_end_ns", "gaps"), ("blocks", "words")):
        stop = int(columns[count][: i + 1].sum())
        chosen[name] = columns[name][stop - int(columns[count][i]) : stop]
    rows = TotalRows(1)
    thaw(rows, chosen, {int(columns["partition"][i]): 0})
    return rows


def _copy(rows: TotalRows, row: int) -> TotalRows:
    """Copy one total to row 0."""
    return _alone(freeze(rows, np.array([row]), {int(rows.columns.partition[row]): 0}), 0)


def _add_number(rows: TotalRows, row: int, former: TotalRows) -> None:
    columns, before = rows.columns, former.columns
    if columns.flags[row] & before.flags[0] & INTEGER:
        columns.integer[row] += before.integer[0]
        return
    for each, at in ((columns, row), (before, 0)):
        if each.flags[at] & INTEGER:
            each.total[at] = float(each.integer[at])
    columns.flags[row] &= np.uint8(255 - INTEGER)
    columns.total[row] += before.total[0]


def _same_bounds(rows: TotalRows, row: int, former: TotalRows) -> bool:
    block, other = int(rows.columns.block[row]), int(former.columns.block[0])
    stop = 1 + max(int(rows.words[block]), NO_BUCKETS + 1)
    return bool(np.array_equal(rows.words[block : block + stop], former.words[other : other + stop]))


def _add_histogram(rows: TotalRows, row: int, former: TotalRows) -> None:
    """Add a former total by converting it to a point first, so that both are merged by the same code."""
    one: UInt8Array = np.array([DUPLICATE], np.uint8)
    scratch: Int64Array = np.zeros(2 * MAX_BUCKETS, np.int64)
    times: Int64Array = np.ones(1, np.int64)
    width = max(KEPT_WORDS, int(former.columns.capacity[0]), int(rows.columns.capacity[row]) * 2)
    shell = DeltaHistogramPoints(np.zeros(1, ROW), np.zeros((4, 2), np.int64), np.zeros((4, 1), np.uint64))
    point, ignored = shell.blank(width), shell.blank(width)
    add_histograms(former.columns, former.words, shell, one, times, point, scratch, 0)
    point.rows["row"] = row
    one[0] = ADDED
    needed = 1
    while needed:
        _, needed = add_histograms(rows.columns, rows.words, point, one, times, ignored, scratch, 0)
        if needed:
            rows.enlarge_block(row, needed)
    if not former.columns.flags[0] & HAS_SUM:
        rows.columns.flags[row] &= np.uint8(255 - HAS_SUM)


def _join_gaps(rows: TotalRows, row: int, former: TotalRows) -> None:
    """Prepend the former total's gaps, and the interval between both totals, to the gaps of the present one."""
    columns, chosen = rows.columns, np.array([row])
    begins, ends = gather_gaps(columns, rows.gaps, chosen)
    older, older_ends = gather_gaps(former.columns, former.gaps, np.array([0]))
    between = [(former.columns.last_ns[0], columns.start_ns[row])]
    missing = np.array([pair for pair in between if pair[0] < pair[1]], np.int64).reshape(-1, 2)
    begins = np.concatenate([older, missing[:, 0], begins])[-MAX_JOINED_GAPS:]
    ends = np.concatenate([older_ends, missing[:, 1], ends])[-MAX_JOINED_GAPS:]
    release(columns, rows.gaps, chosen)
    rows.make_room_for_gaps(len(begins))
    remember_all(columns, rows.gaps, row, begins, ends)
