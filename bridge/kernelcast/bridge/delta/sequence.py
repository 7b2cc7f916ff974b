"""Compiled functions that put each delta point in its place in its series, and decide whether it is added.

`Accumulator` calls `sequence` before it adds a batch. A delta point covers `(start, time]`, and a series' points are
expected end to end. Example, after a point that covers (0, 10]:

    (10, 20]  begins where the last one ended: ADDED; the series ends at 20
    (30, 40]  begins later: GAP; the gap (20, 30] is remembered and the series ends at 40
    (22, 25]  lies within the gap: FILLED; the gap becomes (20, 22] and (25, 30]
    (22, 25]  again: the gap no longer contains it: OLDER, not added

So every interval is added once, whatever the order of its points, as long as its gap is remembered. Without a start
time only the order is known: a point that is later than the last one is added, any other is refused.

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
    PART_OF_TOPIC,
    PASSED,
    PENDING,
    REPLAYED,
    RESTING,
    SCATTERED,
    SPREAD,
    WHOLE_TOPIC,
    DeltaColumns,
    Gaps,
)
from kernelcast.bridge.delta.gaps import fill, forget_gaps, remember_gap
from kernelcast.bridge.tables.columns import Int32Array, Int64Array, UInt8Array
from kernelcast.columnar import NO_RECORDED_VALUE
from kernelcast.columnar.compiled import allocating_kernel, inlined, routine

NANOSECONDS_PER_MILLISECOND = 1_000_000
NO_LIMIT_NS = 2**63 - 1


class Incoming(NamedTuple):
    """Delta points to be put in order; the last four arrays have one item per message, all others one per point.

    Attributes:
        row: Row of the series; UNSEEN, NOT_DELTA or REFUSED if it has none.
        message: Index of the message.
        start_ns, time_ns: int64; a time beyond 2**63 - 1 appears as a negative number.
        flags: Flags of the point, as in `columnar`.
        sound: 0 if the value cannot be added.
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
    """State of the partitions, indexed by partition number.

    Attributes:
        positions: The offset up to which the totals of a partition are valid.
        scopes: WHOLE_TOPIC, PART_OF_TOPIC or GROWN_TOPIC.
    """

    positions: Int64Array
    scopes: UInt8Array


class Order(NamedTuple):
    """Limits by which points are put in order.

    Attributes:
        tolerance_ns: How far ahead of its append time a time may lie.
        settle_ms: Time for which a series must come from one partition only before it is trusted again; 0 if it may
            come from any, because all partitions are read and kept together.
        max_gaps: Largest number of gaps of one series.
    """

    tolerance_ns: int
    settle_ms: int
    max_gaps: int


@inlined
def scattered(columns: DeltaColumns, row: int, partition: int, append_ms: int, settle_ms: int, scope: int) -> bool:
    """Note the partition of a series; returns whether the series alternates between partitions.

    A second move within `settle_ms` means that the messages have no key, so that other replicas get some of them. It
    does not where this replica reads the whole topic, nor after partitions were added to a topic: each addition moves
    series. A PENDING series has moved when it came here, and waits from then on. If `settle_ms` is 0, a series may come
    from any partition, also in messages that are older than its last move.
    """
    if columns.partition[row] != partition:
        soon = columns.moved_ms[row] > 0 and append_ms - columns.moved_ms[row] < settle_ms
        if settle_ms > 0 and soon and scope == PART_OF_TOPIC:
            columns.flags[row] |= np.uint8(SCATTERED)
        if columns.flags[row] & PENDING == 0:
            columns.moved_ms[row] = append_ms
        columns.partition[row] = partition
    return settle_ms > 0 and columns.flags[row] & SCATTERED != 0


@inlined
def note_jump(columns: DeltaColumns, row: int, before_ns: int, start_ns: int, time_ns: int, latest_ns: int) -> None:
    """Note where the points of the right clock end, if the clock has run ahead with this point.

    They end at `before_ns`, as far as they have been read. A point that ends beyond `latest_ns` but begins before it
    begins where the last one of the right clock ended, even if that one has not been read yet.
    """
    if before_ns <= latest_ns < time_ns:
        columns.right_ns[row] = max(before_ns, start_ns) if start_ns <= latest_ns else before_ns


@inlined
def late(columns: DeltaColumns, gaps: Gaps, row: int, start_ns: int, time_ns: int, latest_ns: int) -> int:
    """Return the outcome of a point that does not end after the newest one of its series."""
    if time_ns == columns.last_ns[row] and start_ns == columns.begin_ns[row]:
        return DUPLICATE
    outcome = fill(columns, gaps, row, start_ns, time_ns) if 0 < start_ns < time_ns else OLDER
    if outcome == FILLED:
        note_jump(columns, row, columns.right_ns[row], start_ns, time_ns, latest_ns)
    return outcome


@inlined
def place(  # noqa: PLR0913, PLR0917  scalars only: numba inlines them for nothing
    columns: DeltaColumns, gaps: Gaps, row: int, start_ns: int, time_ns: int, latest_ns: int, max_gaps: int
) -> int:
    """Return the outcome of a point, and move the end of its series if the point is the newest.

    `latest_ns` is the latest time that Kafka's clock allows. If the series ends beyond it and the point does not, the
    producer's clock was ahead and has been corrected (CLOCK_SET): the series goes on from the earlier time.

    A point that begins before the newest one began, and ends after it, spans the correction of a clock that was behind.
    It says nothing about the time after the newest point: points of that time may come later, from another partition.
    """
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
        return late(columns, gaps, row, start_ns, time_ns, latest_ns)
    elif start_ns in (0, time_ns, last_ns):
        outcome = ADDED
    elif start_ns > last_ns:
        remember_gap(columns, gaps, row, last_ns, start_ns, max_gaps)
        outcome = GAP
    else:
        if 0 < start_ns < columns.begin_ns[row]:
            remember_gap(columns, gaps, row, last_ns, time_ns, max_gaps)
        outcome = OVERLAP
    if last_ns != NOTHING:
        note_jump(columns, row, last_ns, start_ns, time_ns, latest_ns)
    columns.begin_ns[row] = start_ns
    columns.last_ns[row] = time_ns
    return outcome


@inlined
def shown(outcome: int, last_ns: int, shown_times: Int64Array, row: int) -> int:
    """Return the time with which a total is passed on; NOTHING without a total. See `DeltaColumns.shown_ns`."""
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
    """Return the outcome of a point that was added to the resting total of an ended series.

    The total continues, so that increments that Prometheus has not seen yet are not lost. But if other replicas read
    other partitions of the topic, and the point does not begin where the last one ended, the series may have continued
    there in the meantime. Prometheus may then have seen a greater total, so this total restarts at 0.

    Args:
        columns: The totals.
        gaps: Missing intervals.
        row: The series.
        outcome: Outcome that `place` returned.
        before_ns: The end of the series' last point before this one.
        start_ns: The start of the point.
        scope: Scope of the point's partition, see `Standing`.
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
    """Decide the outcome of each point, in the order of the batch.

    Args:
        columns: The totals; their ends move.
        gaps: Missing intervals.
        points: The points.
        standing: State of the partitions.
        order: Limits, see `Order`.
        times: Shape (n,); output: the time with which each series' total is passed on after each point. NOTHING if the
            series is PENDING, if the message adds nothing and comes from a partition that the series has left, or if
            the partition does not have the series' newest message: the total then belongs to the other partition,
            which may still be catching up.

    Returns:
        Shape (n,): the outcome code of each point.
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
        elif not left and scattered(columns, row, partition, append_ms, settle_ms, scopes[partition]):
            outcomes[i] = SPREAD
        elif flags[i] & NO_RECORDED_VALUE:
            outcomes[i] = NO_VALUE
        elif not sound[i]:
            outcomes[i] = MALFORMED
        else:
            # An old message says nothing about the producer's present clock.
            latest_ns = append_ms * NANOSECONDS_PER_MILLISECOND + tolerance_ns if newest else NO_LIMIT_NS
            before_ns = lasts[row]
            outcome = place(columns, gaps, row, starts[i], ends[i], latest_ns, max_gaps)
            if row_flags[row] & RESTING:
                outcome = returned(columns, gaps, row, outcome, before_ns, starts[i], scopes[partition])
            if outcome == FIRST and scopes[partition] == GROWN_TOPIC:
                row_flags[row] |= np.uint8(PENDING)
                moves[row] = append_ms
            outcomes[i] = outcome
        # A message that is read again passes the total on only if it is the series' newest: one of another partition
        # would give the total an old time.
        again = outcomes[i] == REPLAYED and not newest and row_partitions[row] != partition
        idle = left and outcomes[i] > LAST_ADDED
        hidden = idle or again or row_flags[row] & PENDING != 0
        times[i] = NOTHING if hidden else shown(outcomes[i], lasts[row], shown_times, row)
    return outcomes
