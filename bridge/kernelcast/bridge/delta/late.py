"""Adds late points to reserved totals. Only the consuming thread uses it.

A total is reserved for a PENDING one of its series, which began after a silence, see `adoption`. A bridge that catches
up with several partitions may read the points of that silence afterwards, from the partition that the series has left.
These points continue the reserved total. Example: the total of partition 0 ends at 60 s in its snapshot, and the series
has moved to partition 1 at 86 s. The bridge reads partition 1 first, so that a total begins at 86 s, and 60 s to 86 s
from partition 0 later.

A reserved total has no row in the table. `as_rows` gives it one for the duration of one batch, and `reserve_again`
reserves it again.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.delta.columns import NOTHING, PENDING, RESTING
from kernelcast.bridge.delta.joining import reserve
from kernelcast.bridge.delta.persistence.freeze import Columns, concatenated, freeze, one_by_one, thaw
from kernelcast.bridge.delta.rows import TotalRows
from kernelcast.bridge.tables.columns import Int32Array, Int64Array, MessageColumns
from kernelcast.columnar import HistogramColumns, NumberColumns


class ReservedRow(NamedTuple):
    """A reserved total that has a row for the duration of one batch.

    Attributes:
        row: The PENDING row of its series.
        at: Its own row, under an identity that no series has; NOTHING without one.
        former: The total as it was reserved.
        points: Indices of the points that continue it.
    """

    row: int
    at: int
    former: Columns
    points: Int64Array


def as_rows(
    table: TotalRows,
    rows: Int32Array,
    points: NumberColumns | HistogramColumns,
    messages: MessageColumns,
    away_ms: int,
) -> tuple[Int32Array, list[ReservedRow]]:
    """Give rows to the reserved totals that points of a batch continue.

    Points after a silence of more than `away_ms` do not: another replica may have continued the total. Until
    `reserve_again` the totals are not reserved.

    Args:
        table: The totals.
        rows: The row of each point.
        points: The points.
        messages: Append time of each message.
        away_ms: Longest time without a point in which no other replica can have continued a total.

    Returns:
        The row of each point, and the totals to reserve again after the batch.
    """
    reserved_rows: list[ReservedRow] = []
    if not table.reserved:
        return rows, reserved_rows
    columns, times_ns = table.columns, points.time_ns.view(np.int64)
    late = np.flatnonzero((rows >= 0) & (columns.flags[rows] & PENDING != 0) & (times_ns <= columns.start_ns[rows]))
    if not len(late):
        return rows, reserved_rows
    late = late[np.argsort(rows[late], kind="stable")]
    chosen, begins = np.unique(rows[late], return_index=True)
    for row, of_row in zip(chosen.tolist(), np.split(late, begins[1:]), strict=True):
        former = table.reserved.get(columns.digest[row].tobytes())
        continuing = of_row if former is None else _before_silence(former, points, of_row, messages, away_ms)
        if former is not None and len(continuing):
            reserved_rows.append(ReservedRow(row, NOTHING, former, continuing))
    reserved_rows, rows = _new_rows(table, reserved_rows), rows.copy()
    for one in reserved_rows:
        del table.reserved[one.former["digest"].tobytes()]
        rows[one.points] = one.at
    return rows, reserved_rows


def reserve_again(table: TotalRows, reserved_rows: list[ReservedRow]) -> None:
    """Reserve the totals again, with their late points; further ones can follow.

    If the batch has reserved the next total of the series, both are joined.
    """
    if not reserved_rows:
        return
    rows, formers = np.array([one.at for one in reserved_rows]), [one.former for one in reserved_rows]
    numbers = table.columns.partition[rows].tolist()
    frozen = freeze(table, rows, {number: number for number in numbers})
    flags, kept = frozen["flags"], np.uint8(PENDING | RESTING)
    frozen["flags"] = (flags & ~kept) | (_column(formers, "flags") & kept)
    frozen |= {name: _column(formers, name) for name in ("digest", "partition")}
    table.free(rows)
    table.freed -= set(rows.tolist())  # no series number refers to them
    for one, total in zip(reserved_rows, one_by_one(frozen), strict=True):
        if (digest := total["digest"].tobytes()) in table.reserved:
            reserve(table, one.row, total)
        else:
            table.reserved[digest] = total


def _new_rows(table: TotalRows, reserved_rows: list[ReservedRow]) -> list[ReservedRow]:
    """Give rows to reserved totals; those for which the table has no room are left out."""
    if not reserved_rows:
        return reserved_rows
    formers = [one.former for one in reserved_rows]
    unused = 255 - _column(formers, "digest")
    numbers = _column(formers, "partition").tolist()
    columns = {**concatenated(formers), "digest": unused}
    thaw(table, columns, {number: number for number in numbers})
    found = [one._replace(at=table.find(digest.tobytes())) for one, digest in zip(reserved_rows, unused, strict=True)]
    found = [one for one in found if one.at != NOTHING]
    flags, at = table.columns.flags, [one.at for one in found]
    flags[at] = (flags[at] & np.uint8(255 - RESTING)) | np.uint8(PENDING)
    return found


def _column(formers: Sequence[Columns], name: str) -> NDArray[Any]:
    return np.concatenate([one[name] for one in formers])


def _before_silence(
    former: Columns,
    points: NumberColumns | HistogramColumns,
    late: Int64Array,
    messages: MessageColumns,
    away_ms: int,
) -> Int64Array:
    """Return the first of some points of a series, up to a point that begins after a silence of more than `away_ms`."""
    starts_ns, times_ns = points.start_ns[late].view(np.int64), points.time_ns[late].view(np.int64)
    append_ms = messages.append_ms[points.message[late]]
    known_ns, known_ms = (
        np.maximum.accumulate(np.concatenate([former[name], column[:-1]]))
        for name, column in (("last_ns", times_ns), ("append_ms", append_ms))
    )
    silent = (np.where(starts_ns == 0, times_ns, starts_ns) > known_ns) & (append_ms - known_ms > away_ms)
    continuing: Int64Array = late[: np.argmax(silent) if silent.any() else None]
    return continuing
