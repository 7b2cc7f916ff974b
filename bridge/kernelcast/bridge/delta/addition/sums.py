"""A compiled function that adds delta sums to running totals, for `Accumulator`; integers stay exact."""

from typing import NamedTuple

import numpy as np

from kernelcast.bridge.delta.columns import (
    FILLED,
    FIRST,
    INTEGER,
    LAST_ADDED,
    NO_VALUE,
    NOTHING,
    OLDER,
    OVERFLOW,
    PASSED,
    SPREAD,
    DeltaColumns,
)
from kernelcast.bridge.tables.columns import FloatArray, Int32Array, Int64Array, UInt8Array
from kernelcast.columnar import IS_INTEGER, NO_RECORDED_VALUE
from kernelcast.columnar.compiled import inlined, kernel

UNKNOWN_TIME_NS = 1
"""Time of a point that only marks the absence of a value; earlier than any real point."""


class NumberTotals(NamedTuple):
    """Number points whose deltas become totals in place; one row per point.

    Attributes:
        row: Row of the series.
        start_ns, time_ns, value, integer, flags: As `columnar.NumberColumns`, times as int64.
    """

    row: Int32Array
    start_ns: Int64Array
    time_ns: Int64Array
    value: FloatArray
    integer: Int64Array
    flags: UInt8Array


@inlined
def too_large(total: int, increment: int) -> bool:
    """Whether the sum of two int64 exceeds int64."""
    if increment >= 0:
        return total > 9223372036854775807 - increment
    return total < -9223372036854775808 - increment


@kernel
def add_numbers(  # noqa: C901, PLR0912  one loop over all columns, each a local
    columns: DeltaColumns, points: NumberTotals, outcomes: UInt8Array, times: Int64Array
) -> None:
    """Add the points that `sequence` accepted and put totals in place of deltas.

    Args:
        columns: The totals.
        points: Changed in place.
        outcomes: Outcomes from `sequence`; FILLED and OVERFLOW become final here.
        times: Times from `sequence`. A point without a total is flagged as having no recorded value.
    """
    rows, starts, point_times = points.row, points.start_ns, points.time_ns
    values, integers, flags = points.value, points.integer, points.flags
    row_starts, totals, whole, row_flags = columns.start_ns, columns.total, columns.integer, columns.flags
    # Example: a series gets the deltas 2, 3 and 0.5. Its total is the integer 2, then 5, then the float 5.5: a float
    # clears INTEGER until the total restarts. An integer total beyond int64 restarts at 0, with the point's start time.
    for i in range(len(rows)):
        outcome = outcomes[i]
        if outcome == PASSED:
            continue
        row = rows[i]
        if outcome == FILLED and starts[i] < row_starts[row]:
            outcomes[i] = outcome = OLDER
        if outcome == FIRST:
            totals[row], whole[row] = 0.0, 0
            row_flags[row] |= np.uint8(INTEGER)
        if outcome <= LAST_ADDED:
            if flags[i] & IS_INTEGER and row_flags[row] & INTEGER:
                if too_large(whole[row], integers[i]):
                    outcomes[i] = OVERFLOW
                    whole[row] = 0
                    row_starts[row] = starts[i] if starts[i] > 0 else point_times[i]
                whole[row] += integers[i]
            else:
                if row_flags[row] & INTEGER:
                    totals[row] = float(whole[row])
                    row_flags[row] &= np.uint8(255 - INTEGER)
                totals[row] += values[i]
        if times[i] == NOTHING:
            starts[i], point_times[i], flags[i] = 0, UNKNOWN_TIME_NS, NO_RECORDED_VALUE
            continue
        starts[i] = row_starts[row]
        if outcome in (NO_VALUE, SPREAD):
            flags[i] = NO_RECORDED_VALUE
            point_times[i] = max(times[i], point_times[i])
            continue
        point_times[i] = times[i]
        if row_flags[row] & INTEGER:
            integers[i] = whole[row]
            values[i] = float(whole[row])
            flags[i] = IS_INTEGER
        else:
            integers[i] = 0
            values[i] = totals[row]
            flags[i] = 0
