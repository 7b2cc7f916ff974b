"""Compiled functions that write remote write requests, versions 1.0 and 2.0, from columns; `requests` calls them.

A request is built in two steps, because every message on the wire is preceded by its length: first the body of each
point, then the series around them. Points are sorted by series and time, so those of a series are one *run*.

Source: prompb/types.proto and prompb/io/prometheus/write/v2/types.proto of Prometheus 3.15.
"""

from kernelcast.bridge.tables.columns import Int32Array, Int64Array, UInt8Array
from kernelcast.columnar.compiled import copy_bytes, inlined, kernel

# Tags (field number << 3 | wire type 2, with a length) of the points in a `TimeSeries`.
SAMPLES_V1 = 0x12
HISTOGRAMS_V1 = 0x22
SAMPLES_V2 = 0x12
HISTOGRAMS_V2 = 0x1A
LONGEST_SAMPLE_BYTES = 9 + 2 * 11
"""A double with its tag, and two varints of up to 10 bytes with theirs."""
NOT_YET = -1
"""In `local`: the symbol has no number in this request."""


@inlined
def varint_bytes(number: int) -> int:
    """Return the bytes of a varint; the number is not negative."""
    size = 1
    while number >= 128:
        number >>= 7
        size += 1
    return size


@inlined
def write_varint(out: UInt8Array, at: int, number: int) -> int:
    """Write a varint and return the index after it; the number is not negative."""
    while number >= 128:
        out[at] = (number & 127) | 128
        number >>= 7
        at += 1
    out[at] = number
    return at + 1


@kernel
def sample_bodies(
    bits: Int64Array, time_ms: Int64Array, start_ms: Int64Array, ends: Int64Array, out: UInt8Array
) -> None:
    """Write each row's `Sample`: value, timestamp, and where it is not 0 the start timestamp (2.0 only).

    Args:
        bits: Values, as the bits of doubles, so that stale markers are kept.
        time_ms: Milliseconds, not negative.
        start_ms: Milliseconds, 0 for none.
        ends: Gets the end of each body, after a 0; length n + 1.
        out: At least LONGEST_SAMPLE_BYTES for each row.
    """
    at = 0
    ends[0] = 0
    for i in range(len(bits)):
        out[at] = 0x09
        at += 1
        word = bits[i]
        for _ in range(8):
            out[at] = word & 255
            word >>= 8
            at += 1
        out[at] = 0x10
        at = write_varint(out, at + 1, time_ms[i])
        if start_ms[i] > 0:
            out[at] = 0x18
            at = write_varint(out, at + 1, start_ms[i])
        ends[i + 1] = at


@inlined
def run_length(series: Int32Array, first: int) -> int:
    """Number of rows from `first` on that are of the same series."""
    last = first + 1
    while last < len(series) and series[last] == series[first]:
        last += 1
    return last - first


@inlined
def points_size(ends: Int64Array, first: int, count: int) -> int:
    """Bytes of the fields of some points, tags and lengths included."""
    size = 0
    for i in range(first, first + count):
        body = ends[i + 1] - ends[i]
        size += 1 + varint_bytes(body) + body
    return size


@inlined
def write_points(  # noqa: PLR0913, PLR0917  scalars only
    out: UInt8Array, at: int, tag: int, bodies: UInt8Array, ends: Int64Array, first: int, count: int
) -> int:
    """Write the fields of some points."""
    for i in range(first, first + count):
        out[at] = tag
        at = write_varint(out, at + 1, ends[i + 1] - ends[i])
        at = copy_bytes(out, at, bodies, ends[i], ends[i + 1])
    return at


@inlined
def labels_size_v1(labels: Int32Array, first: int, last: int, symbol_ends: Int64Array) -> int:
    """Bytes of the `Label` fields of a series."""
    size = 0
    for j in range(first, last, 2):
        name = symbol_ends[labels[j] + 1] - symbol_ends[labels[j]]
        value = symbol_ends[labels[j + 1] + 1] - symbol_ends[labels[j + 1]]
        body = 2 + varint_bytes(name) + name + varint_bytes(value) + value
        size += 1 + varint_bytes(body) + body
    return size


@kernel
def series_v1(
    series: Int32Array,
    labels: tuple[Int32Array, Int64Array],
    symbols: tuple[UInt8Array, Int64Array],
    bodies: tuple[UInt8Array, Int64Array],
    tag: int,
    out: UInt8Array,
) -> int:
    """Write the `TimeSeries` of a 1.0 request; with an empty `out`, only compute its length, which is returned.

    Args:
        series: Each point's series, sorted.
        labels: By series number, symbol numbers in turns of name and value, and where they end.
        symbols: Texts, and where they end.
        bodies: The points' bytes, and where they end.
        tag: The points' field.
        out: Where to write.
    """
    # Bytes of one series, for name="up", job="a" (each `Label` has name 0A and value 12):
    #   0A len( 0A len(0A 08 __name__ 12 02 up) 0A len(0A 03 job 12 01 a) | tag len(point) | tag len(point) … )
    refs, ref_ends = labels
    texts, text_ends = symbols
    points, point_ends = bodies
    writing = len(out) > 0
    at = 0
    first = 0
    while first < len(series):
        count = run_length(series, first)
        low, high = ref_ends[series[first]], ref_ends[series[first] + 1]
        size = labels_size_v1(refs, low, high, text_ends) + points_size(point_ends, first, count)
        if not writing:
            at += 1 + varint_bytes(size) + size
            first += count
            continue
        out[at] = 0x0A
        at = write_varint(out, at + 1, size)
        for j in range(low, high, 2):
            name_start, name_stop = text_ends[refs[j]], text_ends[refs[j] + 1]
            value_start, value_stop = text_ends[refs[j + 1]], text_ends[refs[j + 1] + 1]
            name, value = name_stop - name_start, value_stop - value_start
            out[at] = 0x0A
            at = write_varint(out, at + 1, 2 + varint_bytes(name) + name + varint_bytes(value) + value)
            out[at] = 0x0A
            at = write_varint(out, at + 1, name)
            at = copy_bytes(out, at, texts, name_start, name_stop)
            out[at] = 0x12
            at = write_varint(out, at + 1, value)
            at = copy_bytes(out, at, texts, value_start, value_stop)
        at = write_points(out, at, tag, points, point_ends, first, count)
        first += count
    return at


@inlined
def number_symbol(local: Int32Array, order: Int32Array, used: int, symbol: int) -> int:
    """Give a symbol the number `used` in this request, unless it has one; returns how many are numbered now."""
    if local[symbol] != NOT_YET:
        return used
    local[symbol] = used
    order[used] = symbol
    return used + 1


@kernel
def number_symbols(  # noqa: PLR0913, PLR0917  columns, each a local
    series: Int32Array,
    labels: tuple[Int32Array, Int64Array],
    family: Int32Array,
    families: Int32Array,
    local: Int32Array,
    order: Int32Array,
    used: int,
) -> int:
    """Number the symbols that some series need in a 2.0 request.

    Args:
        series: Each point's series, sorted.
        labels: By series number, symbol numbers, and where they end.
        family: By series number, its family.
        families: By family, kind, help and unit.
        local: By symbol, its number in the request, NOT_YET for none; gets the new ones.
        order: The symbols in the request's order; gets the new ones.
        used: How many are numbered.

    Returns:
        How many are numbered now.
    """
    refs, ref_ends = labels
    first = 0
    while first < len(series):
        number = series[first]
        for j in range(ref_ends[number], ref_ends[number + 1]):
            used = number_symbol(local, order, used, refs[j])
        used = number_symbol(local, order, used, families[family[number], 1])
        used = number_symbol(local, order, used, families[family[number], 2])
        first += run_length(series, first)
    return used


@kernel
def symbols_v2(symbols: tuple[UInt8Array, Int64Array], order: Int32Array, out: UInt8Array) -> int:
    """Write the symbol table of a 2.0 request; with an empty `out`, only compute its length, which is returned."""
    texts, text_ends = symbols
    at = 0
    for i in range(len(order)):
        start, stop = text_ends[order[i]], text_ends[order[i] + 1]
        if len(out) == 0:
            at += 1 + varint_bytes(stop - start) + stop - start
            continue
        out[at] = 0x22
        at = write_varint(out, at + 1, stop - start)
        at = copy_bytes(out, at, texts, start, stop)
    return at


@kernel
def series_v2(  # noqa: PLR0913, PLR0917  columns, each a local
    series: Int32Array,
    labels: tuple[Int32Array, Int64Array],
    family: Int32Array,
    families: Int32Array,
    local: Int32Array,
    bodies: tuple[UInt8Array, Int64Array],
    tag: int,
    out: UInt8Array,
) -> int:
    """Write the `TimeSeries` of a 2.0 request; with an empty `out`, only compute its length, which is returned.

    Args:
        series: Each point's series, sorted.
        labels: By series number, symbol numbers, and where they end.
        family: By series number, its family.
        families: By family, kind, help and unit.
        local: By symbol, its number in this request.
        bodies: The points' bytes, and where they end.
        tag: The points' field.
        out: Where to write.
    """
    # Bytes of one series; label references and points are those of its run:
    #   2A len( 0A len(ref ref …) | tag len(point) … | 2A len(08 kind 18 help_ref 20 unit_ref) )
    # `size` counts 0A and its length (1 + varint), the points, 2A with a length below 128 (2), and the metadata.
    refs, ref_ends = labels
    points, point_ends = bodies
    writing = len(out) > 0
    at = 0
    first = 0
    while first < len(series):
        number = series[first]
        count = run_length(series, first)
        low, high = ref_ends[number], ref_ends[number + 1]
        packed = 0
        for j in range(low, high):
            packed += varint_bytes(local[refs[j]])
        kind = families[family[number], 0]
        help_ref, unit_ref = local[families[family[number], 1]], local[families[family[number], 2]]
        metadata = 3 + 1 + varint_bytes(help_ref) + varint_bytes(unit_ref)
        size = 1 + varint_bytes(packed) + packed + points_size(point_ends, first, count) + 2 + metadata
        if not writing:
            at += 1 + varint_bytes(size) + size
            first += count
            continue
        out[at] = 0x2A
        at = write_varint(out, at + 1, size)
        out[at] = 0x0A
        at = write_varint(out, at + 1, packed)
        for j in range(low, high):
            at = write_varint(out, at, local[refs[j]])
        at = write_points(out, at, tag, points, point_ends, first, count)
        out[at] = 0x2A
        at = write_varint(out, at + 1, metadata)
        out[at] = 0x08
        at = write_varint(out, at + 1, kind)
        out[at] = 0x18
        at = write_varint(out, at + 1, help_ref)
        out[at] = 0x20
        at = write_varint(out, at + 1, unit_ref)
        first += count
    return at
