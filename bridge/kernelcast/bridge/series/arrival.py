"""Compiled functions that read a point where it arrives: its origin and its times; `judge` and `record` get them.

`store_numbers` and `store_histograms` take each point through three rooms, in this order: `arrive` (here), `judge`
(`judgement`), and `note` and `record` (`recording`).
"""

from typing import Final, NamedTuple

from kernelcast.bridge.tables.columns import (
    AHEAD,
    MessageColumns,
    ProducerColumns,
    SeriesColumns,
    UInt8Array,
    WireColumns,
    WriterColumns,
)
from kernelcast.columnar.compiled import inlined

NANOSECONDS_PER_MILLISECOND: Final = 1_000_000


class Tables(NamedTuple):
    """All columns that storing a point changes.

    Attributes:
        series: The slots.
        wires: The slot of each series number of the input.
        producers: Time of each producer's last point.
        writers: Time of each writer's last point, and its interval.
        exposed: Per partition number, whether it has passed its gate.
        growth: Per partition number, UNCHANGED, GROWN or ADDED.
    """

    series: SeriesColumns
    wires: WireColumns
    producers: ProducerColumns
    writers: WriterColumns
    exposed: UInt8Array
    growth: UInt8Array


class Arrival(NamedTuple):
    """Origin and times of a point.

    Attributes:
        partition, offset, append_ms, key_hash: Those of its message.
        start_ns: Start of its series; 0 for gauges, and where it is not known.
        time_ns: Event time, by which the points of one clock are ordered.
        shown_ns: The same, or the append time of a point of a clock that is ahead.
        ahead: AHEAD for such a point, else 0.
    """

    partition: int
    offset: int
    append_ms: int
    key_hash: int
    start_ns: int
    time_ns: int
    shown_ns: int
    ahead: int


@inlined
def arrive(
    wires: WireColumns, wire: int, messages: MessageColumns, message: int, times: tuple[int, int], flags: int
) -> Arrival:
    """Return a point's origin and times, and record it as the last one of its series number.

    Args:
        wires: The series numbers.
        wire: The point's.
        messages: Origin of each message.
        message: The point's.
        times: Its start and event time.
        flags: Its flags.
    """
    partition, key_hash, append_ms = (
        messages.partition[message],
        messages.key_hash[message],
        messages.append_ms[message],
    )
    wires.partition[wire] = partition
    wires.key_hash[wire] = key_hash
    wires.append_ms[wire] = max(append_ms, wires.append_ms[wire])
    (start_ns, time_ns), ahead = times, flags & AHEAD
    shown_ns = append_ms * NANOSECONDS_PER_MILLISECOND if ahead else time_ns
    return Arrival(partition, messages.offset[message], append_ms, key_hash, start_ns, time_ns, shown_ns, ahead)


@inlined
def is_lag(tables: Tables, partition: int, other: int) -> bool:
    """Whether a gap between append times of two partitions may be lag, because one of them has not caught up."""
    return partition != other and (tables.exposed[partition] == 0 or tables.exposed[other] == 0)
