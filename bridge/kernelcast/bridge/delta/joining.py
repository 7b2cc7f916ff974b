"""Joins two totals of one series that different replicas have counted; `Adoption` and `Beginnings` call it.

Only the consuming thread uses it.

Invariant: two joined totals count different points. So they are joined only if the former one ends before the present
one begins (`adopt`), or if one lies in a gap of the other (`fill`).

A gap is an interval without points, see `sequence`. A total is PENDING while it is not known whether it continues a
total of another replica, see `adoption`.
"""

from collections.abc import Collection, Mapping
from typing import Final

import numpy as np

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
from kernelcast.bridge.delta.gaps import release, remember_all
from kernelcast.bridge.delta.persistence.freeze import Columns, freeze, gather_gaps, is_newer, thaw
from kernelcast.bridge.delta.rows import TotalRows
from kernelcast.bridge.tables.columns import Int64Array, UInt8Array
from kernelcast.bridge.tables.exponential import MAX_BUCKETS

MAX_JOINED_GAPS: Final = 128
"""Largest number of gaps of a joined total; its oldest gaps beyond it are forgotten."""
LARGEST_INTEGER: Final = 2**63 - 1
"""Totals are not joined if the sum of their integers (values, or counts of histograms) is larger."""
KEPT_WORDS: Final = 4096
"""Smallest size of the buffers in which histograms are joined, in words."""


def precedes(columns: Columns, i: int, start_ns: int) -> bool:
    """Return whether a total of a snapshot ends before another total of its series begins.

    Its newest point may overlap the first point of the other total, but must not be that point. Points overlap after a
    process was restarted on a machine whose clock is behind. For points without start times, `begin_ns` is 0, and only
    the ends are compared.
    """
    return bool(columns["last_ns"][i] <= start_ns or 0 < columns["begin_ns"][i] < start_ns)


def adopt(rows: TotalRows, row: int, former: TotalRows, *, reserved: bool = False) -> bool:
    """Add a total that ends before the present one begins; returns whether that was possible.

    The time between both becomes a gap. The present total stays PENDING if the former one is PENDING, because the
    former one may itself continue a third total.

    Args:
        rows: The totals.
        row: The present one.
        former: The former one, as row 0.
        reserved: Whether the former one is reserved here: it came first, whatever its clock says.
    """
    columns, before = rows.columns, former.columns
    first = reserved or precedes(before._asdict(), 0, int(columns.start_ns[row]))
    if not first or not _add(rows, row, former):
        return False
    _note_missing(rows, row, _gaps_of(former, 0), int(before.last_ns[0]), reserved=reserved)
    rows.columns.start_ns[row] = before.start_ns[0]
    rows.columns.flags[row] &= np.uint8(255 - PENDING) | (before.flags[0] & np.uint8(PENDING))
    return True


def reserve(rows: TotalRows, row: int, former: Columns) -> None:
    """Reserve a former total for a PENDING one, which may continue a newer one of another replica instead.

    Points missing between both are noted at once: late messages of the former total's partition are added to the
    present one. Of two reserved totals, the newer one stays, with the older one if it is PENDING.
    """
    digest = rows.columns.digest[row].tobytes()
    if digest in rows.reserved:
        older, former = sorted((rows.reserved[digest], former), key=lambda one: int(one["last_ns"][0]))
        if former["flags"][0] & PENDING:
            both = alone(former, 0)
            adopt(both, 0, alone(older, 0))
            former = whole(both, 0)
    _note_missing(rows, row, np.stack((former["gap_begin_ns"], former["gap_end_ns"]), axis=1), former["last_ns"][0])
    rows.reserved[digest] = former


def fill(rows: TotalRows, row: int, visit: TotalRows) -> bool:
    """Add a total that lies in a gap of another total of its series, and shorten the gap.

    Args:
        rows: The totals.
        row: The one with the gap.
        visit: The total that another replica counted while the series was there, as row 0.

    Returns:
        Whether that was possible. It is not if the visit's clock was set back to before its first point.
    """
    begin_ns, end_ns = int(visit.columns.start_ns[0]), int(visit.columns.last_ns[0])
    gaps = _gaps_of(rows, row)
    around = np.flatnonzero((gaps[:, 0] <= begin_ns) & (end_ns <= gaps[:, 1]))
    if begin_ns > end_ns or not len(around) or not _add(rows, row, visit):
        return False
    at = int(around[0])
    before, after = np.array([[gaps[at, 0], begin_ns]]), np.array([[end_ns, gaps[at, 1]]])
    _set_gaps(rows, row, np.concatenate([gaps[:at], before, _gaps_of(visit, 0), after, gaps[at + 1 :]]))
    return True


def restore(rows: TotalRows, columns: Columns, number_of: Mapping[int, int]) -> int:
    """Restore a snapshot's totals, as `thaw` does, and join them with totals of the same series that are here already.

    Two totals of a series are joined if at least one of them is PENDING. Without that, `thaw` keeps the newer one only.

    Args:
        rows: Receives the totals.
        columns: Columns of the snapshot.
        number_of: By partition number in the snapshot, its number here; totals of other partitions are left out.

    Returns:
        The number of totals that `thaw` restored.

    Raises:
        WireError: The snapshot has content that no writer produces.
    """
    joins: list[tuple[Columns, Columns]] = []
    for i, digest in enumerate(map(bytes, columns["digest"]) if len(rows) else ()):
        row, number = rows.find(digest), number_of.get(int(columns["partition"][i]))
        if row == NOTHING or number is None or not (rows.columns.flags[row] | columns["flags"][i]) & PENDING:
            continue
        if NOTHING in (rows.columns.last_ns[row], columns["last_ns"][i]):
            continue  # a row without a total: none of the series' points was added
        here, there = whole(rows, row), {**whole(alone(columns, i), 0), "partition": np.array([number])}
        # A total that began after the other one may have ended before it: its producer's clock has been set back.
        here_last, there_last = _continues(here, there), _continues(there, here)
        replaced = there_last or (is_newer(there, 0, here, 0) and not here_last)
        joins.append((here, there) if replaced else (there, here))
    restored = thaw(rows, columns, number_of)
    for former, present in joins:
        rows.free(np.array([rows.find(present["digest"].tobytes())]))
        row = put_back(rows, present)
        if _continues(present, former):
            reserve(rows, row, former)
        elif not adopt(rows, row, table := alone(former, 0)):
            fill(rows, row, table)
    return restored


def _continues(present: Columns, former: Columns) -> bool:
    """Return whether a PENDING total of a snapshot may continue another one."""
    return bool(present["flags"][0] & PENDING) and precedes(former, 0, int(present["start_ns"][0]))


def alone(columns: Columns, i: int) -> TotalRows:
    """Return one total of a snapshot as row 0 of a new table, with the number of its partition.

    Raises:
        WireError: The snapshot is damaged.
    """
    chosen = {name: columns[name][i : i + 1] for name in columns if len(columns[name]) == len(columns["kind"])}
    for name, count in (("gap_begin_ns", "gaps"), ("gap_end_ns", "gaps"), ("blocks", "words")):
        stop = int(columns[count][: i + 1].sum())
        chosen[name] = columns[name][stop - int(columns[count][i]) : stop]
    rows = TotalRows(1)
    put_back(rows, chosen)
    return rows


def whole(rows: TotalRows, row: int) -> Columns:
    """Return one total as columns of a snapshot, with the number of its partition here."""
    number = int(rows.columns.partition[row])
    return freeze(rows, np.array([row]), {number: number})


def put_back(rows: TotalRows, total: Columns) -> int:
    """Make a row of a total that `whole` returned; returns the row."""
    number = int(total["partition"][0])
    thaw(rows, total, {number: number})
    return rows.find(total["digest"].tobytes())


def put_back_reserved(rows: TotalRows, gone: Collection[int]) -> None:
    """Keep the totals that are reserved for series which have left with partitions; their own partitions are ours.

    Args:
        rows: All totals.
        gone: Numbers of the partitions that have left; totals reserved in one of them are dropped.
    """
    for digest, one in list(rows.reserved.items()):
        if one["partition"][0] in gone:
            del rows.reserved[digest]
        elif rows.find(digest) == NOTHING:
            put_back(rows, rows.reserved.pop(digest))


def _add(rows: TotalRows, row: int, other: TotalRows) -> bool:
    """Add the value of another total; returns False, and changes nothing, if both cannot be added."""
    columns, kind = rows.columns, int(rows.columns.kind[row])
    if kind != other.columns.kind[0]:
        return False
    if int(columns.integer[row]) + int(other.columns.integer[0]) > LARGEST_INTEGER:
        return False
    if kind == NUMBER:
        _add_number(rows, row, other)
    elif kind == EXPLICIT and not _same_bounds(rows, row, other):
        return False
    else:
        _add_histogram(rows, row, other)
    return True


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
    """Return whether two totals have the same bounds; `merging` describes their blocks, which begin with the bounds."""
    block, other = int(rows.columns.block[row]), int(former.columns.block[0])
    stop = 1 + max(int(rows.words[block]), NO_BUCKETS + 1)
    return bool(np.array_equal(rows.words[block : block + stop], former.words[other : other + stop]))


def _add_histogram(rows: TotalRows, row: int, former: TotalRows) -> None:
    """Add a former total by converting it to a point first, so that both are merged by the same code."""
    outcome: UInt8Array = np.array([DUPLICATE], np.uint8)
    scratch: Int64Array = np.zeros(2 * MAX_BUCKETS, np.int64)
    times: Int64Array = np.ones(1, np.int64)
    width = max(KEPT_WORDS, int(former.columns.capacity[0]), int(rows.columns.capacity[row]) * 2)
    empty = DeltaHistogramPoints(np.zeros(1, ROW), np.zeros((4, 2), np.int64), np.zeros((4, 1), np.uint64))
    point, ignored = empty.blank(width), empty.blank(width)
    # A DUPLICATE is not added; the former total is written to `point` in place of it.
    add_histograms(former.columns, former.words, empty, outcome, times, point, scratch, 0)
    point.rows["row"] = row
    outcome[0] = ADDED
    needed = 1
    while needed:
        _, needed = add_histograms(rows.columns, rows.words, point, outcome, times, ignored, scratch, 0)
        if needed:
            rows.enlarge_block(row, needed)
    if not former.columns.flags[0] & HAS_SUM:
        rows.columns.flags[row] &= np.uint8(255 - HAS_SUM)


def _gaps_of(rows: TotalRows, row: int) -> Int64Array:
    """Return begins and ends of a total's gaps, shape (n, 2), oldest first."""
    return np.stack(gather_gaps(rows.columns, rows.gaps, np.array([row])), axis=1)


def _note_missing(rows: TotalRows, row: int, gaps: Int64Array, last_ns: int, *, reserved: bool = False) -> None:
    """Note the gaps of a former total, and the one between its end and the present one."""
    start_ns, present = rows.columns.start_ns[row], _gaps_of(rows, row)
    # Those before the present total are of another former one, or were noted when this one was reserved.
    if reserved or rows.columns.digest[row].tobytes() in rows.reserved:
        present = present[present[:, 0] >= start_ns]
    _set_gaps(rows, row, np.concatenate([gaps, np.array([[last_ns, start_ns]]), present]))


def _set_gaps(rows: TotalRows, row: int, gaps: Int64Array) -> None:
    """Replace the gaps of a total; empty gaps, and the oldest beyond MAX_JOINED_GAPS, are left out."""
    kept = gaps[gaps[:, 0] < gaps[:, 1]][-MAX_JOINED_GAPS:]
    release(rows.columns, rows.gaps, np.array([row]))
    rows.make_room_for_gaps(len(kept))
    remember_all(rows.columns, rows.gaps, row, kept[:, 0].copy(), kept[:, 1].copy())
