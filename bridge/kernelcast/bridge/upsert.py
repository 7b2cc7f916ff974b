"""Points into slots: the order of points, the owner of a series, the future; no Python object per point."""

import numpy as np

from kernelcast.bridge.columns import (
    ABSENT,
    CLAMPED,
    EMPTY,
    HAS_SUM,
    INTEGER,
    LADDER,
    LIVE,
    MALFORMED_HISTOGRAM,
    MEMBERSHIP,
    NO_BOUNDS,
    OLDER,
    SECOND_WRITER,
    STORED,
    FloatArray,
    Int64Array,
    MessageColumns,
    Rules,
    SeriesColumns,
    UInt8Array,
    WireColumns,
)
from kernelcast.bridge.machine import kernel, part
from kernelcast.bridge.points import HistogramPoints, NumberPoints, UInt64Array
from kernelcast.columnar import EXPLICIT, IS_INTEGER, NO_RECORDED_VALUE
from kernelcast.columnar import HAS_SUM as POINT_HAS_SUM
from kernelcast.wire.histogram import LADDER_EXPONENTS

NANOSECONDS_PER_MILLISECOND = 1_000_000
LOWEST_RUNG = LADDER_EXPONENTS.start
RUNGS = len(LADDER_EXPONENTS)
LARGEST_COUNT = np.uint64(2**63 - 1)
WIDEST_SHIFT = 40
"""Buckets of scale -40 cover more than any double; shifting further would only overflow."""


@part
def clamp(time_ns: int, append_ms: int, tolerance_ns: int) -> int:
    """A time that is not in the future; times beyond int64 arrive as negative ones."""
    append_ns = append_ms * NANOSECONDS_PER_MILLISECOND
    if time_ns < 0 or time_ns > append_ns + tolerance_ns:
        return append_ns
    return time_ns


@part
def judge(  # noqa: PLR0913, PLR0917  scalars only: numba inlines them for nothing
    state: int,
    same_writer: bool,  # noqa: FBT001  as above
    silent: bool,  # noqa: FBT001  as above
    start_ns: int,
    known_start: int,
    time_ns: int,
    known_time: int,
    next_in_partition: bool,  # noqa: FBT001  as above
) -> int:
    """Whether a point is its series' newest: by start, event time, then offset; and whether its writer may write it."""
    if state == EMPTY:
        return STORED
    if not same_writer:
        return STORED if silent or start_ns > known_time else SECOND_WRITER
    if start_ns != known_start and start_ns != 0 and known_start != 0:  # noqa: PLR1714  numba: no sets
        return STORED if start_ns > known_start else OLDER
    if time_ns != known_time:
        return STORED if time_ns > known_time else OLDER
    return STORED if next_in_partition else OLDER


@part
def moves(state: int, owner: int, partition: int, exposed: UInt8Array) -> bool:
    """Whether a series goes over to the partition that brought its newest point.

    One whose owner is exposed stays with it while the other partition is still catching up: it must not vanish.
    """
    return owner != partition and (state == EMPTY or exposed[owner] == 0 or exposed[partition] != 0)


@kernel
def upsert_numbers(  # noqa: PLR0913, PLR0917  one loop over all columns, each a local
    series: SeriesColumns,
    wires: WireColumns,
    exposed: UInt8Array,
    points: NumberPoints,
    messages: MessageColumns,
    rules: Rules,
    counts: Int64Array,
) -> None:
    """Store points of gauges and sums, in order.

    Args:
        series: The slots.
        wires: Where each of the decoder's series goes.
        exposed: Per partition number, whether it has passed its gate.
        points: What to store.
        messages: Where each message came from.
        rules: See `Rules`.
        counts: Shape (COUNTS,); outcomes are added.
    """
    # Locals, because each use of a tuple's field costs two atomic operations on its reference count.
    states, writers, starts, times = series.state, series.writer, series.start_ns, series.time_ns
    owners, offsets, appends = series.partition, series.offset, series.append_ms
    values, integers, slot_flags = series.value, series.integer, series.flags
    wire_slots, wire_partitions, wire_appends = wires.slot, wires.partition, wires.append_ms
    wire_writers, cumulative = wires.writer, wires.cumulative
    point_wires, point_messages, point_flags = points.series, points.message, points.flags
    point_starts, point_times = points.start_ns, points.time_ns
    point_values, point_integers = points.value, points.integer
    message_partitions, message_offsets, message_appends = messages.partition, messages.offset, messages.append_ms
    tolerance_ns, takeover_ms = rules.tolerance_ns, rules.takeover_ms
    for i in range(len(point_wires)):
        wire = point_wires[i]
        message = point_messages[i]
        partition = message_partitions[message]
        append_ms = message_appends[message]
        offset = message_offsets[message]
        wire_partitions[wire] = partition
        wire_appends[wire] = max(append_ms, wire_appends[wire])
        slot = wire_slots[wire]
        if slot < 0:
            counts[-slot] += 1
            continue
        time_ns = clamp(point_times[i], append_ms, tolerance_ns)
        start_ns = clamp(point_starts[i], append_ms, tolerance_ns) if cumulative[wire] else 0
        writer = wire_writers[wire]
        if time_ns != point_times[i]:
            counts[CLAMPED] += 1
        owner = owners[slot]
        verdict = judge(
            states[slot],
            writers[slot] == writer,
            append_ms - appends[slot] > takeover_ms,
            start_ns,
            starts[slot],
            time_ns,
            times[slot],
            partition == owner and offset >= offsets[slot],
        )
        counts[verdict] += 1
        if verdict != STORED:
            continue
        flags = point_flags[i]
        state = ABSENT if flags & NO_RECORDED_VALUE else LIVE
        if moves(states[slot], owner, partition, exposed):
            owners[slot] = owner = partition
            counts[MEMBERSHIP] += 1
        if owner == partition:
            offsets[slot] = offset
        if states[slot] != state:
            states[slot] = state
            counts[MEMBERSHIP] += 1
        writers[slot] = writer
        starts[slot] = start_ns
        times[slot] = time_ns
        appends[slot] = max(append_ms, appends[slot])
        values[slot] = point_values[i]
        integers[slot] = point_integers[i]
        slot_flags[slot] = INTEGER if flags & IS_INTEGER else 0


@part
def adds_up(count: np.uint64, counts: UInt64Array, start: int, stop: int, total: np.uint64) -> np.uint64:
    """The total plus the counts from start to stop; more than `count` where they exceed it: no sum wraps around."""
    for j in range(start, stop):
        if total > count or counts[j] > count - total:
            return count + np.uint64(1)
        total += counts[j]
    return total


@part
def rising(bounds: FloatArray, start: int, stop: int) -> bool:
    """Whether bounds are finite and strictly rising."""
    for j in range(start, stop):  # noqa: SIM110  numba has no generators here
        if not np.isfinite(bounds[j]) or (j > start and bounds[j] <= bounds[j - 1]):
            return False
    return True


@part
def same_bounds(
    bounds: FloatArray, start: int, stop: int, known: FloatArray, known_start: int, known_stop: int
) -> bool:
    """Whether two sets of bounds are one."""
    if stop - start != known_stop - known_start:
        return False
    for j in range(stop - start):  # noqa: SIM110  numba has no generators here
        if bounds[start + j] != known[known_start + j]:
            return False
    return True


@part
def rung(index: int, scale: int) -> int:
    """The first rung of the ladder at or above a bucket's upper bound, base**(index + 1); RUNGS above the last one."""
    if scale >= 0:
        exponent = (index >> min(scale, 62)) + 1
    else:
        upper = index + 1
        shift = min(-scale, WIDEST_SHIFT)
        limit = 1 << (62 - shift)
        if upper >= limit:
            return RUNGS
        exponent = upper << shift if upper > -limit else LOWEST_RUNG
    if exponent <= LOWEST_RUNG:
        return 0
    return min(exponent - LOWEST_RUNG, RUNGS)


@part
def zero_rung(threshold: float) -> int:
    """The first rung at or above the zero bucket's upper bound."""
    k = 0
    while k < RUNGS and threshold > 2.0 ** (LOWEST_RUNG + k):
        k += 1
    return k


@kernel
def upsert_histograms(  # noqa: C901, PLR0912, PLR0913, PLR0915, PLR0917  one loop over all columns, each a local
    series: SeriesColumns,
    wires: WireColumns,
    exposed: UInt8Array,
    points: HistogramPoints,
    messages: MessageColumns,
    rules: Rules,
    schemas: tuple[Int64Array, FloatArray],
    blocks: Int64Array,
    begin: int,
    counts: Int64Array,
) -> int:
    """Store histogram points from `begin` on.

    Returns:
        The number of points when all are stored; else the index of one whose series needs other bounds first.
    """
    # Locals, because each use of a tuple's field costs two atomic operations on its reference count.
    states, writers, starts, times = series.state, series.writer, series.start_ns, series.time_ns
    owners, offsets, appends = series.partition, series.offset, series.append_ms
    wire_slots, wire_partitions, wire_appends = wires.slot, wires.partition, wires.append_ms
    message_partitions, message_offsets, message_appends = messages.partition, messages.offset, messages.append_ms
    tolerance_ns, takeover_ms = rules.tolerance_ns, rules.takeover_ms
    positive_ends, positive, positive_offsets = points.positive_indptr, points.positive, points.positive_offset
    negative_ends, negative = points.negative_indptr, points.negative
    bound_ends, bounds, bucket_ends, buckets = points.bounds_indptr, points.bounds, points.bucket_indptr, points.buckets
    known_ends, known_bounds = schemas
    for i in range(begin, len(points.series)):
        wire = points.series[i]
        message = points.message[i]
        partition = message_partitions[message]
        append_ms = message_appends[message]
        offset = message_offsets[message]
        wire_partitions[wire] = partition
        wire_appends[wire] = max(append_ms, wire_appends[wire])
        slot = wire_slots[wire]
        if slot < 0:
            counts[-slot] += 1
            continue
        time_ns = clamp(points.time_ns[i], append_ms, tolerance_ns)
        start_ns = clamp(points.start_ns[i], append_ms, tolerance_ns)
        writer = wires.writer[wire]
        owner = owners[slot]
        verdict = judge(
            states[slot],
            writers[slot] == writer,
            append_ms - appends[slot] > takeover_ms,
            start_ns,
            starts[slot],
            time_ns,
            times[slot],
            partition == owner and offset >= offsets[slot],
        )
        flags = points.flags[i]
        count = points.observations[i]
        absent = flags & NO_RECORDED_VALUE
        first, last = bucket_ends[i], bucket_ends[i + 1]
        low, high = bound_ends[i], bound_ends[i + 1]
        schema = series.schema[slot]
        bare = last - first <= 1
        if verdict == STORED and not absent:
            if flags & EXPLICIT:
                total = adds_up(count, buckets, first, last, np.uint64(0))
                sound = last == first or (
                    last - first == high - low + 1 and total == count and rising(bounds, low, high)
                )
                fitting = (
                    schema == NO_BOUNDS
                    if bare
                    else schema > NO_BOUNDS
                    and same_bounds(bounds, low, high, known_bounds, known_ends[schema], known_ends[schema + 1])
                )
            else:
                total = adds_up(count, positive, positive_ends[i], positive_ends[i + 1], points.zero_count[i])
                total = adds_up(count, negative, negative_ends[i], negative_ends[i + 1], total)
                sound = total == count
                fitting = schema == LADDER
            if not sound or count > LARGEST_COUNT:
                verdict = MALFORMED_HISTOGRAM
            elif not fitting:
                return i
        counts[verdict] += 1
        if time_ns != points.time_ns[i]:
            counts[CLAMPED] += 1
        if verdict != STORED:
            continue
        state = ABSENT if absent else LIVE
        if moves(states[slot], owner, partition, exposed):
            owners[slot] = owner = partition
            counts[MEMBERSHIP] += 1
        if owner == partition:
            offsets[slot] = offset
        if states[slot] != state:
            states[slot] = state
            counts[MEMBERSHIP] += 1
        writers[slot] = writer
        starts[slot] = start_ns
        times[slot] = time_ns
        appends[slot] = max(append_ms, appends[slot])
        if absent:
            continue
        series.value[slot] = points.total[i]
        series.integer[slot] = np.int64(count)
        series.flags[slot] = HAS_SUM if flags & POINT_HAS_SUM else 0
        block = series.block[slot]
        if schema == NO_BOUNDS:
            continue
        if schema != LADDER:
            running = np.int64(0)
            for j in range(high - low):
                running += np.int64(buckets[first + j])
                blocks[block + j] = running
            continue
        blocks[block : block + RUNGS] = 0
        for j in range(negative_ends[i], negative_ends[i + 1]):
            blocks[block] += np.int64(negative[j])
        k = zero_rung(points.zero_threshold[i])
        if k < RUNGS:
            blocks[block + k] += np.int64(points.zero_count[i])
        for j in range(positive_ends[i], positive_ends[i + 1]):
            index = int(positive_offsets[i]) + (j - int(positive_ends[i]))
            k = rung(index, int(points.scale[i]))
            if k < RUNGS:
                blocks[block + k] += np.int64(positive[j])
        for k in range(1, RUNGS):
            blocks[block + k] += blocks[block + k - 1]
    return len(points.series)
