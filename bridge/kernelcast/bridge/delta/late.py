"""Adds late points to reserved totals. Only the consuming thread uses it.

A total is reserved for a PENDING one of its series, which began after a silence, see `adoption`. A bridge that catches
up with several partitions may read the points of that silence afterwards, from the partition that the series has left.
They continue the reserved total. Example: the total of partition 0 ends at 60 s in its snapshot, and the series has
moved to partition 1 at 86 s. The bridge reads partition 1 first, so that a total begins at 86 s, and 60 s to 86 s from
partition 0 later.

A reserved total is no row, so it is made a row for the length of one batch: `lend` and `give_back`.
"""

from typing import NamedTuple

import numpy as np

from kernelcast.bridge.delta.columns import NOTHING, PENDING, RESTING
from kernelcast.bridge.delta.joining import note_missing, put_back, whole
from kernelcast.bridge.delta.persistence.freeze import Columns
from kernelcast.bridge.delta.rows import TotalRows
from kernelcast.bridge.tables.columns import Int32Array, Int64Array, MessageColumns
from kernelcast.columnar import HistogramColumns, NumberColumns

_KEPT_FLAGS = PENDING | RESTING


class Lent(NamedTuple):
    """A reserved total that is a row for the length of one batch.

    Attributes:
        row: The PENDING row of its series.
        at: Its own row, under an identity that no series has.
        former: The total as it was reserved.
    """

    row: int
    at: int
    former: Columns


def lend(
    table: TotalRows,
    rows: Int32Array,
    points: NumberColumns | HistogramColumns,
    messages: MessageColumns,
    away_ms: int,
) -> tuple[Int32Array, list[Lent]]:
    """Make rows of the reserved totals that points of a batch continue.

    Points after a silence of more than `away_ms` do not: another replica may have continued the total.

    Args:
        table: The totals.
        rows: The row of each point.
        points: The points.
        messages: Append time of each message.
        away_ms: Longest time without a point in which no other replica can have continued a total.

    Returns:
        The row of each point, and the totals to give back after the batch.
    """
    lent: list[Lent] = []
    if not table.reserved:
        return rows, lent
    columns, times_ns = table.columns, points.time_ns.view(np.int64)
    late = np.flatnonzero((rows >= 0) & (columns.flags[rows] & PENDING != 0) & (times_ns <= columns.start_ns[rows]))
    if not len(late):
        return rows, lent
    lenders, rows = rows[late], rows.copy()
    for row in np.unique(lenders).tolist():
        former = table.reserved.get(digest := table.columns.digest[row].tobytes())
        if former is None:
            continue
        continuing = late[lenders == row]
        if _silence_ms(former, points, continuing, messages) > away_ms:
            continue
        unused = np.frombuffer(bytes(255 - byte for byte in digest), np.uint8).reshape(1, -1)
        at = put_back(table, {**former, "digest": unused})
        if at != NOTHING:
            table.columns.flags[at] = (table.columns.flags[at] & np.uint8(255 - RESTING)) | np.uint8(PENDING)
            rows[continuing] = at
            lent.append(Lent(row, at, former))
    return rows, lent


def give_back(table: TotalRows, lent: list[Lent]) -> None:
    """Reserve lent totals again, with their late points; further ones can follow."""
    for one in lent:
        flags, kept = table.columns.flags[[one.at]], np.uint8(_KEPT_FLAGS)
        former = {
            **whole(table, one.at),
            "digest": one.former["digest"],
            "partition": one.former["partition"],
            "flags": (flags & ~kept) | (one.former["flags"] & kept),
        }
        table.free(np.array([one.at]))
        table.freed.discard(one.at)  # no series number refers to it
        table.reserved[one.former["digest"].tobytes()] = former
        gaps = np.stack((former["gap_begin_ns"], former["gap_end_ns"]), axis=1)
        note_missing(table, one.row, gaps, int(former["last_ns"][0]))


def _silence_ms(
    former: Columns, points: NumberColumns | HistogramColumns, continuing: Int64Array, messages: MessageColumns
) -> int:
    """Return the time between a total and the first of some points that is newer; 0 if they are end to end."""
    starts_ns, times_ns = points.start_ns[continuing].view(np.int64), points.time_ns[continuing].view(np.int64)
    newer = continuing[np.where(starts_ns == 0, times_ns, starts_ns) > former["last_ns"][0]]
    return int(messages.append_ms[points.message[newer[0]]] - former["append_ms"][0]) if len(newer) else 0
