"""Compiled functions that keep the gaps of each series: intervals between its points that have not been counted yet.

`sequence` and `joining` call them. The gaps of all series lie in one table. Those of a series are a list, newest first,
and unused entries are another:

    columns.gap[row] -> entry (20, 30] -> entry (5, 10] -> NOTHING
    control[FREE_GAP] -> entry -> entry -> NOTHING
"""

import numpy as np

from kernelcast.bridge.delta.columns import (
    FILLED,
    FORGOTTEN_GAPS,
    FREE_GAP,
    NOTHING,
    OLDER,
    USED_GAPS,
    DeltaColumns,
    Gaps,
)
from kernelcast.bridge.tables.columns import Int64Array
from kernelcast.columnar.compiled import kernel, routine


@routine
def remember_gap(columns: DeltaColumns, gaps: Gaps, row: int, begin_ns: int, end_ns: int, most: int) -> None:
    """Prepend a gap to the list of its series.

    If the list is full, its oldest gap is dropped; if the table is full, the new gap is dropped.

    Invariant of a list: from `columns.gap[row]` along `gaps.next` it has `columns.gaps[row]` entries, newest first,
    which do not overlap.
    """
    control, following = gaps.control, gaps.next
    if columns.gaps[row] >= most:
        previous, oldest = NOTHING, columns.gap[row]
        while following[oldest] != NOTHING:
            previous, oldest = oldest, following[oldest]
        if previous == NOTHING:
            columns.gap[row] = NOTHING
        else:
            following[previous] = NOTHING
        following[oldest] = np.int32(control[FREE_GAP])
        control[FREE_GAP] = oldest
        control[FORGOTTEN_GAPS] += 1
        columns.gaps[row] -= 1
    found = take_gap(gaps)
    if found == NOTHING:
        control[FORGOTTEN_GAPS] += 1
        return
    gaps.begin_ns[found] = begin_ns
    gaps.end_ns[found] = end_ns
    following[found] = columns.gap[row]
    columns.gap[row] = found
    columns.gaps[row] += 1


@routine
def take_gap(gaps: Gaps) -> int:
    """Take an entry off the free list, or an unused one; NOTHING if the table is full."""
    control = gaps.control
    found = control[FREE_GAP]
    if found != NOTHING:
        control[FREE_GAP] = gaps.next[found]
    elif control[USED_GAPS] < len(gaps.next):
        found = control[USED_GAPS]
        control[USED_GAPS] = found + 1
    return int(found)


@routine
def fill(columns: DeltaColumns, gaps: Gaps, row: int, start_ns: int, time_ns: int) -> int:
    """Cut the interval of a point out of the gap that contains it and return FILLED; return OLDER if there is none."""
    # A point (22, 25] in the gap (20, 30]: two gaps (20, 22] and (25, 30] are left. (20, 25]: (25, 30]. (20, 30]: none.
    begins, ends, following, control = gaps.begin_ns, gaps.end_ns, gaps.next, gaps.control
    previous, at = NOTHING, columns.gap[row]
    while at != NOTHING and begins[at] > start_ns:
        previous, at = at, following[at]
    if at == NOTHING or time_ns > ends[at]:
        return OLDER
    if begins[at] == start_ns and ends[at] == time_ns:
        if previous == NOTHING:
            columns.gap[row] = following[at]
        else:
            following[previous] = following[at]
        following[at] = np.int32(control[FREE_GAP])
        control[FREE_GAP] = at
        columns.gaps[row] -= 1
    elif begins[at] == start_ns:
        begins[at] = time_ns
    elif ends[at] == time_ns:
        ends[at] = start_ns
    else:  # in the middle: `at` keeps the newer part, and a new entry after it the older part
        older = take_gap(gaps)
        if older == NOTHING:
            control[FORGOTTEN_GAPS] += 1
        else:
            begins[older], ends[older] = begins[at], start_ns
            following[older] = following[at]
            following[at] = older
            columns.gaps[row] += 1
        begins[at] = time_ns
    return FILLED


@routine
def forget_gaps(columns: DeltaColumns, gaps: Gaps, row: int) -> None:
    """Return all gaps of a series to the free list."""
    at = columns.gap[row]
    while at != NOTHING:
        after = gaps.next[at]
        gaps.next[at] = np.int32(gaps.control[FREE_GAP])
        gaps.control[FREE_GAP] = at
        at = after
    columns.gap[row] = NOTHING
    columns.gaps[row] = 0


@kernel
def release(columns: DeltaColumns, gaps: Gaps, rows: Int64Array) -> None:
    """Return all gaps of some rows to the free list."""
    for row in rows:
        forget_gaps(columns, gaps, row)


@kernel
def remember_all(columns: DeltaColumns, gaps: Gaps, row: int, begins: Int64Array, ends: Int64Array) -> None:
    """Set the gaps of a row, given oldest first."""
    for i in range(len(begins)):
        remember_gap(columns, gaps, row, begins[i], ends[i], len(begins))
