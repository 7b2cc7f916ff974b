"""Finds the number of a series by the bytes of a message, and adds new resources, scopes, metrics and series.

Numbers form a tree: a resource, its scopes, their metrics, and the series of a metric. Attribute bytes have numbers
of their own, because the metrics of one thing, such as a GPU, have the same attributes: a series is a pair of
numbers.

`messages` calls `metric_context` once for each metric; the readers of points call `attributes` or `series_of` for
each point. Lookups guess first: producers send metrics and series in the same order each time, so each entry
remembers its `successor`, the entry that followed it last time. The bytes are always compared, so a wrong guess costs
one comparison and the hash table is searched instead.
"""

from kernelcast.columnar.columns import UInt8Array
from kernelcast.columnar.compiled import copy_bytes, inlined, routine, signed
from kernelcast.columnar.walk.intern import add, add_series, append, find, find_series, shortage
from kernelcast.columnar.walk.layout import (
    ABSENT,
    ENTRIES,
    FREE,
    GROW_CONTEXTS,
    GROW_SERIES,
    IDENTITY_TOO_LONG,
    LAST_METRIC,
    LAST_SERIES,
    MAX_IDENTITIES,
    MAX_IDENTITY_BYTES,
    ODD,
    QUANTILE,
    RESOURCE,
    RESOURCE_START,
    RESOURCE_STOP,
    SCHEMA_START,
    SCHEMA_STOP,
    SCOPE,
    SCOPE_START,
    SCOPE_STOP,
    SHORT_OF,
    TEXT,
    TOO_MANY_IDENTITIES,
    USED,
    VERIFY,
    WalkState,
)
from kernelcast.columnar.walk.plain import are_plain_attributes, is_plain_resource, is_plain_scope
from kernelcast.columnar.walk.stream import delimited, equal, is_ascii

METRIC_KEY_HEADER = 11
"""Size of a metric key's header. Example, a cumulative monotonic sum (type 7) `hits` of unit `1` without schema URL:

    07 02 01  04 00 00 00  01 00 00 00  68 69 74 73  31
    type, temporality, monotonic; lengths of name and unit; name; unit; schema URL
"""

SUMMARY_TYPE = 11
"""`series.PointType.SUMMARY`. A summary has one key for each of its parts; the byte of the temporality is the part."""
QUANTILE_PART = 0
SUM_PART = 1
COUNT_PART = 2
QUANTILE_BYTES = 8
"""Size of the bits of the quantile, a double, at the end of a quantile's key."""

MAX_DESCRIPTION_BYTES = 4096
"""A longer description is not stored: it would stay in memory as long as the metric."""


@routine
def context(state: WalkState, parent: int, b: UInt8Array, start: int, stop: int) -> int:
    """Return the number of a resource or scope, a new one if needed, or a status below 0."""
    number, hashed = find(state.contexts, parent, b, start, stop - start)
    if number >= 0:
        return signed(number)
    if stop - start > state.control[MAX_IDENTITY_BYTES]:
        return IDENTITY_TOO_LONG
    short = shortage(state.contexts, stop - start)
    if short:
        state.control[SHORT_OF] = short
        return GROW_CONTEXTS
    plain = is_plain_resource(b, start, stop) if parent == ABSENT else is_plain_scope(b, start, stop)
    if not plain:
        state.control[VERIFY] = 1
    if parent >= 0:
        state.contexts.entries[parent].refs += 1
    return add(state.contexts, parent, hashed, b, start, stop - start)


@routine
def enclosing_scope(state: WalkState, b: UInt8Array) -> int:
    """Return the number of the scope that the walk is in, or a status below 0."""
    control = state.control
    if control[SCOPE] >= 0:
        return signed(control[SCOPE])
    if control[RESOURCE] < 0:
        number = context(state, ABSENT, b, control[RESOURCE_START], control[RESOURCE_STOP])
        if number < 0:
            return number
        control[RESOURCE] = number
    number = context(state, control[RESOURCE], b, control[SCOPE_START], control[SCOPE_STOP])
    if number >= 0:
        control[SCOPE] = number
    return number


@routine
def metric_key(
    state: WalkState, b: UInt8Array, kind: tuple[int, int, int], name: tuple[int, int], unit: tuple[int, int]
) -> int:
    """Write a metric's key to the scratch and return its length, or a status below 0."""
    key = state.key
    schema = state.control[SCHEMA_START]
    name_length = name[1] - name[0]
    unit_length = unit[1] - unit[0]
    schema_length = signed(state.control[SCHEMA_STOP] - schema)
    if name_length + unit_length + schema_length > state.control[MAX_IDENTITY_BYTES]:
        return IDENTITY_TOO_LONG
    for i in range(3):
        key[i] = kind[i]
    for i in range(4):
        key[3 + i] = (name_length >> (8 * i)) & 0xFF
        key[7 + i] = (unit_length >> (8 * i)) & 0xFF
    copy_bytes(key, METRIC_KEY_HEADER, b, name[0], name[1])
    position = METRIC_KEY_HEADER + name_length
    copy_bytes(key, position, b, unit[0], unit[1])
    copy_bytes(key, position + unit_length, b, schema, schema + schema_length)
    position += unit_length + schema_length
    if kind[0] == SUMMARY_TYPE and kind[1] == QUANTILE_PART:
        for i in range(QUANTILE_BYTES):
            key[position + i] = (state.control[QUANTILE] >> (8 * i)) & 0xFF
        position += QUANTILE_BYTES
    return position


@routine
def metric_context(
    state: WalkState,
    b: UInt8Array,
    kind: tuple[int, int, int],
    texts: tuple[tuple[int, int], tuple[int, int], tuple[int, int]],
) -> int:
    """Return the number of a metric, a new one if needed, or a status below 0.

    Args:
        state: The decoder's arrays.
        b: The message.
        kind: Type, temporality, monotonic.
        texts: Start and stop of name, unit and description.
    """
    scope = enclosing_scope(state, b)
    if scope < 0:
        return scope
    contexts = state.contexts
    length = metric_key(state, b, kind, texts[0], texts[1])
    if length < 0:
        return length
    last = state.control[LAST_METRIC]
    guess = signed(contexts.entries[last].successor)
    if (
        contexts.entries[guess].parent == scope
        and contexts.entries[guess].length == length
        and equal(state.key, 0, contexts.arena, contexts.entries[guess].offset, length)
    ):
        state.control[LAST_METRIC] = guess
        return signed(guess)
    number, hashed = find(contexts, scope, state.key, 0, length)
    if number < 0:
        extra = texts[2][1] - texts[2][0]
        if extra > MAX_DESCRIPTION_BYTES:
            extra = 0
        short = shortage(contexts, length + extra)
        if short:
            state.control[SHORT_OF] = short
            return GROW_CONTEXTS
        if not (is_ascii(b, texts[0][0], texts[0][1]) and is_ascii(b, texts[1][0], texts[1][1])):
            state.control[VERIFY] = 1
        contexts.entries[scope].refs += 1
        number = add(contexts, scope, hashed, state.key, 0, length)
        append(contexts, b, texts[2][0], extra)
        contexts.entries[number].extra = extra
    contexts.entries[last].successor = number
    state.control[LAST_METRIC] = number
    return signed(number)


@routine
def series_of(state: WalkState, metric: int, b: UInt8Array, start: int, stop: int) -> int:
    """Return the number of the series with the attribute fields b[start:stop], or a status below 0."""
    control, series, contexts = state.control, state.series, state.contexts
    text, hashed_text = find(contexts, TEXT, b, start, stop - start)
    number, hashed = find_series(series, metric, text)
    if number < 0:
        if stop - start > control[MAX_IDENTITY_BYTES]:
            return IDENTITY_TOO_LONG
        if series.counters[USED] - series.counters[FREE] >= control[MAX_IDENTITIES]:
            return TOO_MANY_IDENTITIES
        if shortage(series, 0):
            control[SHORT_OF] = ENTRIES
            return GROW_SERIES
        if text < 0:
            short = shortage(contexts, stop - start)
            if short:
                control[SHORT_OF] = short
                return GROW_CONTEXTS
            if not are_plain_attributes(b, start, stop):
                control[VERIFY] = 1
            text = add(contexts, TEXT, hashed_text, b, start, stop - start)
            _, hashed = find_series(series, metric, text)
        number = add_series(state, metric, text, hashed)
    series.entries[control[LAST_SERIES]].successor = number
    control[LAST_SERIES] = number
    return signed(number)


@routine
def read_attributes(state: WalkState, metric: int, b: UInt8Array, p: int, end: int) -> tuple[int, int]:
    """Return the series of the attribute fields that start at p, or a status below 0; and the position after them."""
    tag = b[p]
    stop = p
    while stop < end and b[stop] == tag:
        _, stop = delimited(b, stop + 1, end)
        if stop < 0:
            return ODD, p
    return series_of(state, metric, b, p, stop), stop


@inlined
def attributes(state: WalkState, metric: int, b: UInt8Array, p: int, end: int) -> tuple[int, int]:
    """Return the same as `read_attributes`, but try the successor of the last series first.

    Bytes that equal those of a known series are whole fields, because the known ones were. The run of fields must also
    end there: the next byte must not be another attribute's tag.
    """
    series = state.series
    guess = signed(series.entries[state.control[LAST_SERIES]].successor)
    if series.entries[guess].parent == metric:
        length = signed(series.entries[guess].length)
        stop = p + length
        if (
            stop <= end
            and equal(b, p, state.contexts.arena, series.entries[guess].offset, length)
            and (stop == end or b[stop] != b[p])
        ):
            state.control[LAST_SERIES] = guess
            return guess, stop
    return read_attributes(state, metric, b, p, end)
