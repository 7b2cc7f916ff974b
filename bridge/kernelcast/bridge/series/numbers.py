"""A compiled function that stores points of gauges and sums in slots; `SeriesStore` calls it for each batch."""

from kernelcast.bridge.series.judgement import Tables, times_of
from kernelcast.bridge.series.recording import arrival, change, refused, tried
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
        wire = points.series[i]
        origin = arrival(wires, wire, messages, points.message[i])
        slot, flags = wires.slot[wire], points.flags[i]
        when = times_of(points.start_ns[i] if wires.cumulative[wire] else 0, points.time_ns[i], flags, origin.append_ms)
        if slot < 0:
            counts[refused(tables, wire, origin, when)] += 1
            continue
        if when.ahead:
            tables.producers.ahead[wires.producer[wire]] += 1
        verdict = tried(tables, wire, slot, origin, when, rules)
        counts[verdict] += 1
        if verdict != STORED:
            continue
        state = ABSENT if flags & NO_RECORDED_VALUE else LIVE
        counts[MEMBERSHIP] += change(tables, wire, slot, origin, when, state, rules)
        series.value[slot] = points.value[i]
        series.integer[slot] = points.integer[i]
        series.flags[slot] |= INTEGER if flags & IS_INTEGER else 0
