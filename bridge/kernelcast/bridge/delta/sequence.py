"""Where each delta point belongs in its series: next, after a gap, into a gap, again, too late; no Python per point.

A delta point covers `(start, time]`. A series' points are expected end to end. One that begins where the last one ended
is added; one that begins later leaves a gap, which is remembered, and a late one that lies within a gap is added and
takes its part of the gap away. So every interval is added once however its points are shuffled, as long as the gap is
remembered. Without a start time only the order is known: what is later than the last one is added, what is not is
refused.

Source of the terms: opentelemetry-specification, metrics/data-model.md, "Temporality" and "Overlap".
"""

from typing import NamedTuple

import numpy as np

from kernelcast.bridge.delta.columns import (
    ADDED,
    CLOCK_SET,
    DUPLICATE,
    FILLED,
    FIRST,
    FORGOTTEN_GAPS,
    FREE_GAP,
    GAP,
    GROWN_TOPIC,
    LAST_ADDED,
    LIMIT,
    MALFORMED,
    NO_VALUE,
    NOT_DELTA,
    NOTHING,
    OLDER,
    OVERLAP,
    PASSED,
    PENDING,
    REPLAYED,
    RESTING,
    SCATTERED,
    SPREAD,
    USED_GAPS,
    WHOLE_TOPIC,
    DeltaColumns,
    Gaps,
)
from kernelcast.bridge.tables.columns import Int32Array, Int64Array, UInt8Array
from kernelcast.columnar import NO_RECORDED_VALUE
from kernelcast.columnar.compiled import allocating_kernel, inlined, kernel, routine

NANOSECONDS_PER_MILLISECOND = 1_000_000
NO_LIMIT_NS = 2**63 - 1


class Incoming(NamedTuple):
    """What is needed of points to order them; all arrays of one length but the last four, which are per message.

    Attributes:
        row: Row of the series; UNSEEN, NOT_DELTA or REFUSED where it has none.
        message: Index of the message.
        start_ns, time_ns: int64; times beyond are negative.
        flags: As `columnar` has them.
        sound: 0 where the value cannot be added.
        partition: By message, the partition's number.
        offset: By message.
        append_ms: By message.
        key_hash: By message.
    """

    row: Int32Array
    message: Int32Array
    start_ns: Int64Array
    time_ns: Int64Array
    flags: UInt8Array
    sound: UInt8Array
    partition: Int32Array
    offset: Int64Array
    append_ms: Int64Array
    key_hash: Int64Array


class Standing(NamedTuple):
    """What is known of partitions, by their numbers.

    Attributes:
        positions: The offset as of which the totals of a partition are valid.
        scopes: WHOLE_TOPIC, PART_OF_TOPIC or GROWN_TOPIC.
    """

    positions: Int64Array
    scopes: UInt8Array


class Order(NamedTuple):
    """What points are judged by.

    Attributes:
        tolerance_ns: How far ahead of its append time a time may lie.
        settle_ms: How long a series must come from one partition only to be trusted again; 0 where it may come from
            any, because all partitions are read and kept together.
        max_gaps: Gaps remembered of one series.
    """

    tolerance_ns: int
    settle_ms: int
    max_gaps: int


@routine
def remember_gap(columns: DeltaColumns, gaps: Gaps, row: int, begin_ns: int, end_ns: int, most: int) -> None:
    """Put a gap before the others of its series; without room, the oldest one is forgotten, or this one."""
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
    """A free gap, or NOTHING."""
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
    """FILLED where a point lies within a known gap, whose part it takes away; else OLDER."""
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
    else:
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
    """Give all gaps of a series back."""
    at = columns.gap[row]
    while at != NOTHING:
        after = gaps.next[at]
        gaps.next[at] = np.int32(gaps.control[FREE_GAP])
        gaps.control[FREE_GAP] = at
        at = after
    columns.gap[row] = NOTHING
    columns.gaps[row] = 0


@inlined
def scattered(columns: DeltaColumns, row: int, partition: int, append_ms: int, settle_ms: int) -> bool:
    """Note where a series comes from, and whether it keeps coming from elsewhere.

    One move is what a topic with more partitions brings; the next one within `settle_ms` shows that messages have no
    key.
    """
    if columns.partition[row] != partition:
        if columns.moved_ms[row] > 0 and append_ms - columns.moved_ms[row] < settle_ms:
            columns.flags[row] |= np.uint8(SCATTERED)
        columns.moved_ms[row] = append_ms
        columns.partition[row] = partition
    return settle_ms > 0 and columns.flags[row] & SCATTERED != 0


@inlined
def place(  # noqa: PLR0913, PLR0917  scalars only: numba inlines them for nothing
    columns: DeltaColumns, gaps: Gaps, row: int, start_ns: int, time_ns: int, latest_ns: int, max_gaps: int
) -> int:
    """Where a point belongs in its series, whose end moves with it."""
    if time_ns <= 0 or start_ns < 0 or start_ns > time_ns:
        return MALFORMED
    last_ns = columns.last_ns[row]
    if last_ns == NOTHING:
        columns.start_ns[row] = start_ns if start_ns > 0 else time_ns
        outcome = FIRST
    elif last_ns > latest_ns >= time_ns > columns.right_ns[row]:
        forget_gaps(columns, gaps, row)
        outcome = CLOCK_SET
    elif time_ns <= last_ns:
        if time_ns == last_ns and start_ns == columns.begin_ns[row]:
            return DUPLICATE
        return fill(columns, gaps, row, start_ns, time_ns) if 0 < start_ns < time_ns else OLDER
    elif start_ns in (0, time_ns, last_ns):
        outcome = ADDED
    elif start_ns > last_ns:
        remember_gap(columns, gaps, row, last_ns, start_ns, max_gaps)
        outcome = GAP
    else:
        outcome = OVERLAP
    if last_ns != NOTHING and last_ns <= latest_ns < time_ns:
        columns.right_ns[row] = last_ns
    columns.begin_ns[row] = start_ns
    columns.last_ns[row] = time_ns
    return outcome


@inlined
def shown(outcome: int, last_ns: int, shown_times: Int64Array, row: int) -> int:
    """The time to show a total with; NOTHING without a total."""
    if last_ns == NOTHING:
        return NOTHING
    if outcome in (FIRST, CLOCK_SET):
        shown_times[row] = last_ns
    else:
        shown_times[row] = max(last_ns, shown_times[row] + (1 if outcome == FILLED else 0))
    return int(shown_times[row])


@routine
def returned(  # noqa: PLR0913, PLR0917  scalars only
    columns: DeltaColumns, gaps: Gaps, row: int, outcome: int, before_ns: int, start_ns: int, scope: int
) -> int:
    """What becomes of a point that was added to the resting total of a series that had ended.

    The total goes on: what Prometheus has not seen of it is not lost. But the series may have gone on elsewhere in the
    meantime, if other replicas read other partitions of its topic and the point does not begin where the last one
    ended. Then its total begins anew, for Prometheus may have seen a greater one.

    Args:
        columns: The totals.
        gaps: What is known to be missing.
        row: The series.
        outcome: What `place` says.
        before_ns: The end of the series' last point before this one.
        start_ns: The start of the point.
        scope: Of the point's partition, see `Standing`.
    """
    if outcome > LAST_ADDED or outcome == FILLED:
        return outcome
    columns.flags[row] &= np.uint8(255 - RESTING)
    if scope == WHOLE_TOPIC or (outcome == ADDED and start_ns == before_ns):
        return outcome
    forget_gaps(columns, gaps, row)
    columns.start_ns[row] = start_ns if start_ns > 0 else columns.last_ns[row]
    return FIRST


@allocating_kernel
def sequence(  # noqa: C901  one loop over all columns, each a local
    columns: DeltaColumns, gaps: Gaps, points: Incoming, standing: Standing, order: Order, times: Int64Array
) -> UInt8Array:
    """Judge points, in order.

    Args:
        columns: The totals, whose ends move.
        gaps: What is known to be missing.
        points: The points.
        standing: What is known of partitions.
        order: See `Order`.
        times: Shape (n,); filled with the time to show each series' total with as of each point, and with NOTHING where
            the series is PENDING, or a partition that it has left, or that does not have its newest message, is read
            again: its total is that of the other partition, which may still be catching up.

    Returns:
        Shape (n,): what becomes of each point.
    """
    # Locals, because each use of a tuple's field costs two atomic operations on its reference count.
    rows, point_messages, starts, ends = points.row, points.message, points.start_ns, points.time_ns
    flags, sound = points.flags, points.sound
    partitions, offsets, appends = points.partition, points.offset, points.append_ms
    row_appends, row_partitions = columns.append_ms, columns.partition
    keys, row_keys = points.key_hash, columns.key_hash
    lasts, shown_times, row_flags, moves = columns.last_ns, columns.shown_ns, columns.flags, columns.moved_ms
    positions, scopes = standing.positions, standing.scopes
    tolerance_ns, settle_ms, max_gaps = order.tolerance_ns, order.settle_ms, order.max_gaps
    outcomes = np.empty(len(rows), np.uint8)
    for i in range(len(rows)):
        row = rows[i]
        if row < 0:
            outcomes[i] = PASSED if row == NOT_DELTA else LIMIT
            times[i] = NOTHING
            continue
        message = point_messages[i]
        partition, append_ms = partitions[message], appends[message]
        newest = append_ms >= row_appends[row]
        if newest:
            row_appends[row], row_keys[row] = append_ms, keys[message]
        if row_partitions[row] == NOTHING:
            row_partitions[row] = partition
        left = settle_ms > 0 and not newest and row_partitions[row] != partition
        if offsets[message] < positions[partition]:
            outcomes[i] = REPLAYED
        elif not left and scattered(columns, row, partition, append_ms, settle_ms):
            outcomes[i] = SPREAD
        elif flags[i] & NO_RECORDED_VALUE:
            outcomes[i] = NO_VALUE
        elif not sound[i]:
            outcomes[i] = MALFORMED
        else:
            # A message that was appended before one that is known says nothing about the producer's present clock.
            latest_ns = append_ms * NANOSECONDS_PER_MILLISECOND + tolerance_ns if newest else NO_LIMIT_NS
            before_ns = lasts[row]
            outcome = place(columns, gaps, row, starts[i], ends[i], latest_ns, max_gaps)
            if row_flags[row] & RESTING:
                outcome = returned(columns, gaps, row, outcome, before_ns, starts[i], scopes[partition])
            if outcome == FIRST and scopes[partition] == GROWN_TOPIC:
                row_flags[row] |= np.uint8(PENDING)
                moves[row] = append_ms
            outcomes[i] = outcome
        # Of what is read again, the newest message shows the total: one of another partition would make it look old.
        again = outcomes[i] == REPLAYED and not newest and row_partitions[row] != partition
        hidden = left or again or row_flags[row] & PENDING != 0
        times[i] = NOTHING if hidden else shown(outcomes[i], lasts[row], shown_times, row)
    return outcomes


@kernel
def release(columns: DeltaColumns, gaps: Gaps, rows: Int64Array) -> None:
    """Give back the gaps of rows."""
    for row in rows:
        forget_gaps(columns, gaps, row)


@kernel
def remember_all(columns: DeltaColumns, gaps: Gaps, row: int, begins: Int64Array, ends: Int64Array) -> None:
    """Give a row its gaps, oldest first."""
    for i in range(len(begins)):
        remember_gap(columns, gaps, row, begins[i], ends[i], len(begins))
