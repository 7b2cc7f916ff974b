"""Walks a message down to its data points; fields may be in any order, except repeated ones.

`batch`, called through `entries`, reads many messages. Each level of a message has a function of its name, from the
outside in: `message` (ExportMetricsServiceRequest), `resource_metrics`, `scope_metrics`, `metric`, `container`, and
`container_points`. A level reads its header fields first, wherever they stand, then the repeated fields of the level
below. A second occurrence of a single field is left to protobuf (status ODD).
"""

import numpy as np

from kernelcast.columnar.columns import Int64Array, UInt8Array
from kernelcast.columnar.compiled import routine, signed, spliced
from kernelcast.columnar.walk.histograms import explicit_point, exponential_point
from kernelcast.columnar.walk.intern import begin_message, undo_message
from kernelcast.columnar.walk.layout import (
    GROW_HISTOGRAMS,
    GROW_NUMBERS,
    HISTOGRAM_ROWS,
    MARKS,
    MAX_POINTS,
    MESSAGE,
    ODD,
    OK,
    POINTS,
    PROGRESS,
    RESOURCE,
    RESOURCE_START,
    RESOURCE_STOP,
    ROWS,
    SCHEMA_START,
    SCHEMA_STOP,
    SCOPE,
    SCOPE_START,
    SCOPE_STOP,
    TOO_MANY_POINTS,
    UNSUPPORTED,
    VERIFY,
    WHERE,
    WalkState,
)
from kernelcast.columnar.walk.lookup import metric_context
from kernelcast.columnar.walk.points import number_point
from kernelcast.columnar.walk.stream import delimited, is_ascii, skip, varint
from kernelcast.columnar.walk.summaries import summary_points

# Tags: field number and wire type in one byte.
FIRST = 10
SECOND = 18
THIRD = 26
TEMPORALITY = 16
MONOTONIC = 24
GAUGE = 42
SUM = 58
HISTOGRAM = 74
EXPONENTIAL = 82
SUMMARY = 90
METADATA = 98

NOWHERE = (0, 0)
"""Range of a field that the message does not have. No field starts at 0, because its tag and length precede it."""


@routine
def check_text(state: WalkState, b: UInt8Array, start: int, stop: int) -> None:
    """Have protobuf check a text that becomes no identity, unless it is ASCII: the walk does not know UTF-8."""
    if not is_ascii(b, start, stop):
        state.control[VERIFY] = 1


@routine
def container_header(b: UInt8Array, tag: int, p: int, end: int) -> tuple[int, int, int]:
    """Return the number of points or a status below 0, temporality, monotonicity.

    They are read before any point, because on the wire temporality and monotonicity follow the points.
    """
    points = 0
    temporality = 0
    monotonic = 0
    while p < end:
        field = b[p]
        if field == FIRST:
            _, p = delimited(b, p + 1, end)
            points += 1
        elif (field == TEMPORALITY and tag not in (GAUGE, SUMMARY)) or (field == MONOTONIC and tag == SUM):
            word, p = varint(b, p + 1, end)
            if field == MONOTONIC:
                monotonic = 1 if word != 0 else 0
            else:
                low = signed(word & np.uint64(0xFFFFFFFF))
                temporality = low if low <= 2 else 0
        else:
            p = skip(b, p, end)
        if p < 0:
            return ODD, 0, 0
    return points, temporality, monotonic


@routine
def room_for(state: WalkState, tag: int, points: int) -> int:
    """OK if the points of a container fit into the rows and the message's limit."""
    control = state.control
    control[POINTS] += points
    if control[POINTS] > control[MAX_POINTS]:
        return TOO_MANY_POINTS
    if tag in (GAUGE, SUM, SUMMARY):
        return GROW_NUMBERS if control[ROWS] + points > len(state.numbers) else OK
    return GROW_HISTOGRAMS if control[HISTOGRAM_ROWS] + points > len(state.histograms) else OK


@spliced
def container_points(state: WalkState, metric: int, b: UInt8Array, tag: int, p: int, end: int) -> int:
    """Read every data point of a container whose header has been read."""
    while p < end:
        if b[p] != FIRST:
            p = skip(b, p, end)
            continue
        state.control[WHERE] = p
        start, p = delimited(b, p + 1, end)
        if tag in (GAUGE, SUM):
            status = number_point(state, metric, b, start, p)
        elif tag == HISTOGRAM:
            status = explicit_point(state, metric, b, start, p)
        else:
            status = exponential_point(state, metric, b, start, p)
        if status < 0:
            return status
    return OK


@spliced
def container(
    state: WalkState,
    b: UInt8Array,
    tag: int,
    data: tuple[int, int],
    texts: tuple[tuple[int, int], tuple[int, int], tuple[int, int]],
) -> int:
    """Read a gauge, sum, histogram or summary; metrics without a name are counted and verified, not used."""
    points, temporality, monotonic = container_header(b, tag, data[0], data[1])
    if points <= 0:
        check_text(state, b, texts[0][0], texts[0][1])
        check_text(state, b, texts[1][0], texts[1][1])
        return points
    if texts[0][0] == texts[0][1]:
        state.control[UNSUPPORTED] += points
        state.control[VERIFY] = 1
        state.control[POINTS] += points
        return TOO_MANY_POINTS if state.control[POINTS] > state.control[MAX_POINTS] else OK
    status = room_for(state, tag, points)
    if status < 0:
        return status
    if tag == SUMMARY:
        return summary_points(state, b, texts, data[0], data[1])
    metric = metric_context(state, b, (tag >> 3, temporality, monotonic), texts)
    if metric < 0:
        return metric
    return container_points(state, metric, b, tag, data[0], data[1])


@spliced
def metric(state: WalkState, b: UInt8Array, p: int, end: int) -> int:  # noqa: C901, PLR0911, PLR0912  one switch over tags
    """Read a Metric: first its texts, at any position, then its data."""
    name = NOWHERE
    description = NOWHERE
    unit = NOWHERE
    data = NOWHERE
    kind = 0
    while p < end:
        tag = signed(b[p])
        if tag not in (FIRST, SECOND, THIRD, GAUGE, SUM, HISTOGRAM, EXPONENTIAL, SUMMARY):
            if tag == METADATA:
                state.control[VERIFY] = 1
            p = skip(b, p, end)
            if p < 0:
                return ODD
            continue
        start, p = delimited(b, p + 1, end)
        if p < 0:
            return ODD
        # protobuf merges two fields of a kind, or takes the last one; it rewrites the message.
        if tag == FIRST:
            if name[0] > 0:
                return ODD
            name = (start, p)
        elif tag == SECOND:
            if description[0] > 0:
                return ODD
            description = (start, p)
            check_text(state, b, start, p)
        elif tag == THIRD:
            if unit[0] > 0:
                return ODD
            unit = (start, p)
        else:
            if kind > 0:
                return ODD
            kind = tag
            data = (start, p)
    if kind == 0:
        check_text(state, b, name[0], name[1])
        check_text(state, b, unit[0], unit[1])
        return OK
    return container(state, b, kind, data, (name, unit, description))


@routine
def header(state: WalkState, b: UInt8Array, p: int, end: int) -> tuple[int, tuple[int, int], tuple[int, int]]:
    """Return the ranges of a ResourceMetrics' resource or a ScopeMetrics' scope, and of its schema URL; or a status."""
    found = NOWHERE
    schema = NOWHERE
    while p < end:
        tag = b[p]
        if tag not in (FIRST, THIRD):
            p = skip(b, p, end)
            if p < 0:
                return ODD, found, schema
            continue
        start, p = delimited(b, p + 1, end)
        if p < 0 or (tag == FIRST and found[0] > 0):
            return ODD, found, schema
        if tag == FIRST:
            found = (start, p)
        else:
            schema = (start, p)  # of two, the last one counts
            check_text(state, b, start, p)
    return OK, found, schema


@spliced
def scope_metrics(state: WalkState, b: UInt8Array, p: int, end: int) -> int:
    """Read a ScopeMetrics: first its scope, at any position, then its metrics."""
    status, scope, schema = header(state, b, p, end)
    if status < 0:
        return status
    state.control[SCOPE_START] = scope[0]
    state.control[SCOPE_STOP] = scope[1]
    state.control[SCHEMA_START] = schema[0]
    state.control[SCHEMA_STOP] = schema[1]
    state.control[SCOPE] = -1
    while p < end:
        if b[p] == SECOND:
            state.control[WHERE] = p
            start, p = delimited(b, p + 1, end)
            if p < 0:
                return ODD
            status = metric(state, b, start, p)
            if status < 0:
                return status
        else:
            p = skip(b, p, end)
    if state.control[SCOPE] < 0 and scope[1] > scope[0]:
        state.control[VERIFY] = 1
    return OK


@spliced
def resource_metrics(state: WalkState, b: UInt8Array, p: int, end: int) -> int:
    """Read a ResourceMetrics: first its resource, at any position, then its scopes."""
    status, resource, _ = header(state, b, p, end)
    if status < 0:
        return status
    state.control[RESOURCE_START] = resource[0]
    state.control[RESOURCE_STOP] = resource[1]
    state.control[RESOURCE] = -1
    while p < end:
        if b[p] == SECOND:
            start, p = delimited(b, p + 1, end)
            status = scope_metrics(state, b, start, p)
            if status < 0:
                return status
        else:
            p = skip(b, p, end)
    if state.control[RESOURCE] < 0 and resource[1] > resource[0]:
        state.control[VERIFY] = 1  # no point made it an identity, so nothing else has looked inside
    return OK


@spliced
def message(state: WalkState, b: UInt8Array, p: int, end: int) -> int:
    """Read one ExportMetricsServiceRequest."""
    while p < end:
        state.control[WHERE] = p
        if b[p] == FIRST:
            start, p = delimited(b, p + 1, end)
            if p < 0:
                return ODD
            status = resource_metrics(state, b, start, p)
            if status < 0:
                return status
        else:
            p = skip(b, p, end)
            if p < 0:
                return ODD
    return OK


@routine
def roll_back(state: WalkState) -> None:
    """Take back everything that the present message has added: rows, CSR data, entries."""
    for slot in range(PROGRESS):
        state.control[slot] = state.control[MARKS + slot]
    undo_message(state)


@spliced
def batch(state: WalkState, b: UInt8Array, ends: Int64Array, first: int) -> tuple[int, int]:
    """Read messages that lie end to end, until one stops the walk: with a status, or for protobuf to check it.

    Args:
        state: The decoder's arrays.
        b: uint8, the messages.
        ends: int64, where each ends.
        first: Index of the first to read.

    Returns:
        Index of the message that stopped the walk, already rolled back unless its status is OK (then it is complete,
        but counts only if protobuf agrees); or len(ends) and OK.
    """
    control = state.control
    base = control[MESSAGE]
    for i in range(first, len(ends)):
        for slot in range(PROGRESS):
            control[MARKS + slot] = control[slot]
        begin_message(state.series)
        begin_message(state.contexts)
        control[VERIFY] = 0
        control[POINTS] = 0
        control[MESSAGE] = base + i
        status = message(state, b, ends[i - 1] if i > 0 else 0, ends[i])
        control[MESSAGE] = base
        if status < 0:
            roll_back(state)
            return i, status
        if control[VERIFY] != 0:
            return i, OK
    return len(ends), OK
