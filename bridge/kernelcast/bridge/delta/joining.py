"""Joins two totals of one series that different replicas have counted; `Adoption` and `Beginnings` call it.

Only the consuming thread uses it.

Invariant: two joined totals count different points. So they are joined only if the former one ends before the present
one begins (`adopt`), or if one lies in a gap of the other (`fill`).

A gap is an interval without points, see `sequence`. A total is PENDING while it is not known whether it continues a
total of another replica, see `adoption`.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

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
from kernelcast.bridge.delta.persistence.freeze import (
    TAIL_COUNTS,
    Columns,
    as_table,
    check,
    chosen_totals,
    concatenated,
    freeze,
    gather_gaps,
    one_by_one,
    thaw,
)
from kernelcast.bridge.delta.rows import TotalRows
from kernelcast.bridge.tables.columns import Int32Array, Int64Array, UInt8Array
from kernelcast.bridge.tables.exponential import MAX_BUCKETS

MAX_JOINED_GAPS: Final = 128
"""Largest number of gaps of a joined total; its oldest gaps beyond it are forgotten."""
SMALLEST_INTEGER: Final = -(2**63)
LARGEST_INTEGER: Final = 2**63 - 1
"""Totals are not joined if the sum of their integers (values, or counts of histograms) is outside these."""
KEPT_WORDS: Final = 4096
"""Smallest size of the buffers in which histograms are joined, in words."""


def precedes(columns: Columns, i: int, start_ns: int) -> bool:
    """Return whether a total of a snapshot ends before another total of its series begins.

    Its newest point may overlap the first point of the other total, but must not be that point. Points overlap after a
    process was restarted on a machine whose clock is behind. For points without start times, `begin_ns` is 0, and only
    the ends are compared.
    """
    return bool(columns["last_ns"][i] <= start_ns or 0 < columns["begin_ns"][i] < start_ns)


def adopt(rows: TotalRows, row: int, former: TotalRows, at: int = 0, *, reserved: bool = False) -> bool:
    """Add a total that ends before the present one begins; returns whether that was possible.

    The time between both becomes a gap. The present total stays PENDING if the former one is PENDING, because the
    former one may itself continue a third total.

    Args:
        rows: The totals.
        row: The present one.
        former: A table with the former one.
        at: The former one's row.
        reserved: Whether the former one is reserved here: it was counted first, so times are not compared.
    """
    columns, before = rows.columns, former.columns
    first = reserved or precedes(before._asdict(), at, int(columns.start_ns[row]))
    if not first or not _add(rows, row, former, at):
        return False
    _note_missing(rows, row, _gaps_of(former, at), int(before.last_ns[at]), reserved=reserved)
    rows.columns.start_ns[row] = before.start_ns[at]
    rows.columns.flags[row] &= np.uint8(255 - PENDING) | (before.flags[at] & np.uint8(PENDING))
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
            former = freeze(both, np.zeros(1, np.int64), _same_numbers(both.columns.partition))
    _note_missing(rows, row, np.stack((former["gap_begin_ns"], former["gap_end_ns"]), axis=1), former["last_ns"][0])
    rows.reserved[digest] = former


def fill(rows: TotalRows, row: int, visit: TotalRows, at: int = 0) -> bool:
    """Add a total that lies in a gap of another total of its series, and shorten the gap.

    Args:
        rows: The totals.
        row: The one with the gap.
        visit: A table with the total that another replica counted while the series was there.
        at: The visit's row.

    Returns:
        Whether that was possible. It is not if the visit's clock was set back to before its first point.
    """
    begin_ns, end_ns = int(visit.columns.start_ns[at]), int(visit.columns.last_ns[at])
    gaps = _gaps_of(rows, row)
    around = np.flatnonzero((gaps[:, 0] <= begin_ns) & (end_ns <= gaps[:, 1]))
    if begin_ns > end_ns or not len(around) or not _add(rows, row, visit, at):
        return False
    gap = int(around[0])
    before, after = np.array([[gaps[gap, 0], begin_ns]]), np.array([[end_ns, gaps[gap, 1]]])
    _set_gaps(rows, row, np.concatenate([gaps[:gap], before, _gaps_of(visit, at), after, gaps[gap + 1 :]]))
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
    check(columns)
    meeting, found = _meeting(rows, columns, number_of)
    if not len(meeting):
        return thaw(rows, columns, number_of)
    met = found[meeting]
    here, there = freeze(rows, met, _same_numbers(rows.columns.partition[met])), _at(columns, meeting)
    there["partition"] = np.array([number_of[number] for number in there["partition"].tolist()], np.int32)
    # If a producer's clock was set back, a total that began later can end earlier.
    here_last, there_last = _continues(here, there), _continues(there, here)
    replaced = there_last | ((there["last_ns"] > here["last_ns"]) & ~here_last)
    restored = thaw(rows, chosen_totals(columns, ~np.isin(found, met)), number_of)
    rows.free(met[replaced])
    present = chosen_totals(there, replaced)
    restored += thaw(rows, present, _same_numbers(present["partition"]))
    _join(rows, chosen_totals(here, replaced), there_last[replaced])
    _join(rows, chosen_totals(there, ~replaced), here_last[~replaced])
    return restored


def _meeting(rows: TotalRows, columns: Columns, number_of: Mapping[int, int]) -> tuple[Int64Array, Int64Array]:
    """Return the indices of a snapshot's totals that are joined with one that is here, and the row of every total.

    A row without a total is none: of its series no point has been added. If a snapshot has a series twice, which no
    writer does, its first total counts.
    """
    found: Int64Array = np.full(len(columns["kind"]), NOTHING, np.int64)
    if len(rows):
        found[:] = [rows.find(digest) for digest in map(bytes, columns["digest"])]
    meeting = (found != NOTHING) & np.isin(columns["partition"], list(number_of))
    meeting &= (rows.columns.flags[found] | columns["flags"]) & PENDING != 0
    meeting &= (rows.columns.last_ns[found] != NOTHING) & (columns["last_ns"] != NOTHING)
    at = np.flatnonzero(meeting)
    return at[np.sort(np.unique(found[at], return_index=True)[1])], found


def _join(rows: TotalRows, formers: Columns, continued: NDArray[np.bool_]) -> None:
    """Join totals with those of the same series that are rows: reserve the continued ones, and add the others."""
    table = as_table(formers)
    for i, former in enumerate(one_by_one(formers)):
        row = rows.find(former["digest"].tobytes())
        if continued[i]:
            reserve(rows, row, former)
        elif not adopt(rows, row, table, i):
            fill(rows, row, table, i)


def _continues(present: Columns, former: Columns) -> NDArray[np.bool_]:
    """Return which totals of one snapshot are PENDING and may continue those of another one."""
    start_ns, begin_ns = present["start_ns"], former["begin_ns"]
    ends_before = (former["last_ns"] <= start_ns) | ((begin_ns > 0) & (begin_ns < start_ns))
    continues: NDArray[np.bool_] = ends_before & (present["flags"] & PENDING != 0)
    return continues


def _at(columns: Columns, indices: Int64Array) -> dict[str, NDArray[Any]]:
    chosen = np.zeros(len(columns["kind"]), np.bool_)
    chosen[indices] = True
    return chosen_totals(columns, chosen)


def _same_numbers(partitions: Int32Array) -> dict[int, int]:
    """Return the numbers of partitions in columns that have them as they are here."""
    return {number: number for number in partitions.tolist()}


def alone(columns: Columns, i: int) -> TotalRows:
    """Return one total of a snapshot as row 0 of a new table, with the number of its partition.

    Raises:
        WireError: The snapshot is damaged.
    """
    chosen = {name: columns[name][i : i + 1] for name in columns if name not in TAIL_COUNTS}
    for name, count in TAIL_COUNTS.items():
        length = int(columns[count][i])  # most totals have no gaps, and sums no blocks
        stop = int(columns[count][: i + 1].sum()) if length else 0
        chosen[name] = columns[name][stop - length : stop]
    return as_table(chosen)


def put_back_reserved(rows: TotalRows, gone: Collection[int]) -> None:
    """Keep the totals that are reserved for series which have left with partitions; their own partitions are ours.

    Args:
        rows: All totals.
        gone: Numbers of the partitions that have left; totals reserved in one of them are dropped.
    """
    kept: list[Columns] = []
    for digest, one in list(rows.reserved.items()):
        if one["partition"][0] in gone:
            del rows.reserved[digest]
        elif rows.find(digest) == NOTHING:
            kept.append(rows.reserved.pop(digest))
    if kept:
        thaw(rows, columns := concatenated(kept), _same_numbers(columns["partition"]))


def _add(rows: TotalRows, row: int, other: TotalRows, at: int) -> bool:
    """Add the value of another total; returns False, and changes nothing, if both cannot be added."""
    columns, kind = rows.columns, int(rows.columns.kind[row])
    if kind != other.columns.kind[at]:
        return False
    # A histogram's integer is its count; that of a sum which has become a float is an old value.
    exact = kind != NUMBER or columns.flags[row] & other.columns.flags[at] & INTEGER
    if exact and not SMALLEST_INTEGER <= int(columns.integer[row]) + int(other.columns.integer[at]) <= LARGEST_INTEGER:
        return False
    if kind == NUMBER:
        _add_number(rows, row, other, at)
    elif kind == EXPLICIT and not _same_bounds(rows, row, other, at):
        return False
    else:
        _add_histogram(rows, row, other, at)
    return True


def _add_number(rows: TotalRows, row: int, former: TotalRows, at: int) -> None:
    columns, before = rows.columns, former.columns
    if columns.flags[row] & before.flags[at] & INTEGER:
        columns.integer[row] += before.integer[at]
        return
    for each, of in ((columns, row), (before, at)):
        if each.flags[of] & INTEGER:
            each.total[of] = float(each.integer[of])
    columns.flags[row] &= np.uint8(255 - INTEGER)
    columns.total[row] += before.total[at]


def _same_bounds(rows: TotalRows, row: int, former: TotalRows, at: int) -> bool:
    """Return whether two totals have the same bounds; `merging` describes their blocks, which begin with the bounds."""
    block, other = int(rows.columns.block[row]), int(former.columns.block[at])
    stop = 1 + max(int(rows.words[block]), NO_BUCKETS + 1)
    return bool(np.array_equal(rows.words[block : block + stop], former.words[other : other + stop]))


def _add_histogram(rows: TotalRows, row: int, former: TotalRows, at: int) -> None:
    """Add a former total by converting it to a point first, so that both are merged by the same code."""
    outcome: UInt8Array = np.array([DUPLICATE], np.uint8)
    scratch: Int64Array = np.zeros(2 * MAX_BUCKETS, np.int64)
    times: Int64Array = np.ones(1, np.int64)
    width = max(KEPT_WORDS, int(former.columns.capacity[at]), int(rows.columns.capacity[row]) * 2)
    empty = DeltaHistogramPoints(np.zeros(1, ROW), np.zeros((4, 2), np.int64), np.zeros((4, 1), np.uint64))
    empty.rows["row"] = at
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
    if not former.columns.flags[at] & HAS_SUM:
        rows.columns.flags[row] &= np.uint8(255 - HAS_SUM)


def _gaps_of(rows: TotalRows, row: int) -> Int64Array:
    """Return begins and ends of a total's gaps, shape (n, 2), oldest first."""
    if not rows.columns.gaps[row]:
        return np.empty((0, 2), np.int64)
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
    if rows.columns.gaps[row]:
        release(rows.columns, rows.gaps, np.array([row]))
    if len(kept):
        rows.make_room_for_gaps(len(kept))
        remember_all(rows.columns, rows.gaps, row, kept[:, 0].copy(), kept[:, 1].copy())
