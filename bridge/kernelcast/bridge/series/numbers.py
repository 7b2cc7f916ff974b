"""A compiled function that stores points of gauges and sums in slots; `SeriesStore` calls it for each batch."""

from kernelcast.bridge.series.arrival import Tables, arrive
from kernelcast.bridge.series.judgement import judge
from kernelcast.bridge.series.recording import note, record
from kernelcast.bridge.tables.columns import (
    ABSENT,
    INTEGER,
    LIVE,
    MEMBERSHIP,
    STORED,
    Int64Array,
    MessageColumns,
    PointRules,
)
from kernelcast.bridge.tables.points import NumberPoints
from kernelcast.columnar import IS_INTEGER, NO_RECORDED_VALUE
from kernelcast.columnar.compiled import kernel


@kernel
def store_numbers(
    tables: Tables, points: NumberPoints, messages: MessageColumns, rules: PointRules, counts: Int64Array
) -> None:
    """Store points of gauges and sums, in order, and add their outcomes to `counts`, of shape (COUNTS,)."""
    series, wires = tables.series, tables.wires
    for i in range(len(points.series)):
        wire, flags = points.series[i], points.flags[i]
        times = (points.start_ns[i] if wires.cumulative[wire] else 0, points.time_ns[i])
        point = arrive(wires, wire, messages, points.message[i], times, flags)
        verdict = judge(tables, wire, point, rules)
        note(tables, wire, point, verdict)
        counts[verdict] += 1
        if verdict != STORED:
            continue
        slot, state = wires.slot[wire], ABSENT if flags & NO_RECORDED_VALUE else LIVE
        counts[MEMBERSHIP] += record(tables, wire, point, state, rules)
        series.value[slot] = points.value[i]
        series.integer[slot] = points.integer[i]
        series.flags[slot] |= INTEGER if flags & IS_INTEGER else 0
