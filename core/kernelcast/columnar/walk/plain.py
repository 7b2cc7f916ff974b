"""Recognises resources, scopes and attributes whose bytes are certainly valid, so that protobuf need not parse them.

`lookup` asks it for each new one. Plain are ASCII texts, numbers and booleans, with each field once and in the usual
order; nearly all producers send nothing else. Of everything else, protobuf decides whether it is valid.
"""

from kernelcast.columnar.columns import UInt8Array
from kernelcast.columnar.compiled import routine
from kernelcast.columnar.walk.stream import delimited, is_ascii, varint

# Tags: field number and wire type in one byte.
KEY = 10
VALUE = 18
STRING = 10
BOOLEAN = 16
INTEGER = 24
DOUBLE = 33
DOUBLE_BYTES = 9
RESOURCE_ATTRIBUTE = 10
SCOPE_NAME = 10
SCOPE_VERSION = 18
SCOPE_ATTRIBUTE = 26


@routine
def plain_text_end(b: UInt8Array, p: int, end: int) -> int:
    """Return the end of the ASCII text whose length is at p; below 0 if there is none before the end."""
    start, stop = delimited(b, p, end)
    return stop if stop >= 0 and is_ascii(b, start, stop) else -1


@routine
def is_plain_value(b: UInt8Array, p: int, end: int) -> bool:
    """Whether b[p:end] is an AnyValue with one plain field, or without any."""
    if p == end:
        return True
    tag = b[p]
    if tag == STRING:
        return plain_text_end(b, p + 1, end) == end
    if tag in (BOOLEAN, INTEGER):
        _, stop = varint(b, p + 1, end)
        return stop == end
    return tag == DOUBLE and end - p == DOUBLE_BYTES


@routine
def is_plain_attribute(b: UInt8Array, p: int, end: int) -> bool:
    """Whether b[p:end] is a KeyValue with a plain key and then a plain value."""
    if p >= end or b[p] != KEY:
        return False
    p = plain_text_end(b, p + 1, end)
    if p < 0 or p >= end or b[p] != VALUE:
        return False
    start, stop = delimited(b, p + 1, end)
    return stop == end and is_plain_value(b, start, stop)


@routine
def are_plain_attributes(b: UInt8Array, p: int, end: int) -> bool:
    """Whether b[p:end] are plain attributes, all with the first one's tag."""
    first = p
    while p < end:
        if b[p] != b[first]:
            return False
        start, p = delimited(b, p + 1, end)
        if p < 0 or not is_plain_attribute(b, start, p):
            return False
    return True


@routine
def is_plain_resource(b: UInt8Array, p: int, end: int) -> bool:
    """Whether b[p:end] is a Resource of plain attributes alone."""
    return p >= end or (b[p] == RESOURCE_ATTRIBUTE and are_plain_attributes(b, p, end))


@routine
def is_plain_scope(b: UInt8Array, p: int, end: int) -> bool:
    """Whether b[p:end] is an InstrumentationScope of plain texts and attributes alone."""
    while p < end:
        tag = b[p]
        if tag in (SCOPE_NAME, SCOPE_VERSION):
            p = plain_text_end(b, p + 1, end)
            if p < 0:
                return False
        elif tag == SCOPE_ATTRIBUTE:
            start, p = delimited(b, p + 1, end)
            if p < 0 or not is_plain_attribute(b, start, p):
                return False
        else:
            return False
    return True
