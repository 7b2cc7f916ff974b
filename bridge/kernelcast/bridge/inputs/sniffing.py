"""Recognises a message's format by its first bytes: Kafka has no content type, and exporters set no header.

Formats are ruled out by bytes that they cannot begin with: a protobuf message has control characters near its start
(lengths, field tags), text has none; a remote write 1.0 request has text where an OTLP request has a tag. Every message
is examined separately, which costs a microsecond or two: a topic may change its format, or have two.
"""

import re
from typing import Final

from kernelcast.bridge.inputs.formats import INFLUX, OTLP_JSON, OTLP_PROTO, PROMETHEUS, REMOTE_WRITE
from kernelcast.bridge.inputs.remote_write.requests import TIMESERIES_2, is_uncompressed
from kernelcast.bridge.inputs.unpacking import snappy_length

EXAMINED_BYTES: Final = 64
"""A binary message has a control character this early: its first lengths and tags."""
EXAMINED_TEXT_BYTES: Final = 4096
"""Enough for the comments before the first line of text."""
MAX_SNAPPY_RATIO: Final = 64
"""Snappy cannot make a block this many times shorter: a copy of 64 bytes takes two."""
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_OTLP_JSON: Final = re.compile(rb'"resource_?[mM]etrics"')
_TEXT_LINE: Final = re.compile(rb"^(?![ \t]*#)[^\n]*\S[^\n]*", re.MULTILINE)
_PROMETHEUS_COMMENT: Final = re.compile(rb"^[ \t]*# *(HELP|TYPE|UNIT|EOF)\b", re.MULTILINE)
_PROMETHEUS_SAMPLE: Final = re.compile(
    rb"[a-zA-Z_:][a-zA-Z0-9_:]*+[ \t]*+"
    rb"(?:\{|(?<=[ \t])[+-]?(?:[0-9.][0-9.eE+-]*+|(?i:inf(?:inity)?|nan))(?:[ \t\r]|$))"
    rb'|\{[ \t]*"[^"\n]*+"[ \t]*[,}]'
)
"""A name, and its labels or its value; or a name in quotes."""
_RESOURCE, _KEY = 0x0A, 0x0A
"""Tags: of a resource in OTLP's resource metrics, and of a key in an attribute."""


def sniff(message: bytes) -> str | None:
    """The format of a message, None where it is none that is known."""
    if not message:
        return OTLP_PROTO  # an export request without anything is no bytes
    if _CONTROL.search(message, 0, EXAMINED_BYTES):
        return _binary(message)
    head = message[:EXAMINED_TEXT_BYTES].lstrip()
    if head[:1] in (b"{", b"["):
        if _OTLP_JSON.search(head):
            return OTLP_JSON
        return PROMETHEUS if _PROMETHEUS_SAMPLE.match(head) else None
    return _text(head)


def _text(head: bytes) -> str | None:
    line = _TEXT_LINE.search(head)
    if line is None:
        return PROMETHEUS if _PROMETHEUS_COMMENT.search(head) else None
    sample = line[0].strip()
    if _PROMETHEUS_SAMPLE.match(sample):
        return PROMETHEUS
    return INFLUX if b"=" in sample and b" " in sample else None


def _binary(message: bytes) -> str | None:
    first = message[0]
    if first == _RESOURCE:
        return REMOTE_WRITE if _is_remote_write_1(message) else OTLP_PROTO
    if is_uncompressed(message) and (first == TIMESERIES_2 or message[1:2] == b"\0"):  # the first symbol is empty
        return REMOTE_WRITE
    length = snappy_length(message)
    plausible = length and length <= len(message) * MAX_SNAPPY_RATIO and len(message) <= length * 2 + 64
    return REMOTE_WRITE if plausible else None


def _is_remote_write_1(message: bytes) -> bool:
    """Whether a series' first label begins with its name, where OTLP has a resource's attribute with the tag of a key.

    Both are messages in a message in a message; OTLP's are one deeper.
    """
    at = _after_varint(message, 1)
    if message[at : at + 1] != b"\x0a":
        return False
    at = _after_varint(message, at + 1)
    if message[at : at + 1] != b"\x0a":
        return False
    at = _after_varint(message, at + 1)
    return bool(message[at : at + 1]) and message[at] != _KEY and 0x20 < message[at] < 0x7F


def _after_varint(message: bytes, at: int) -> int:
    """End of the varint length that begins at `at`."""
    while at < len(message) and message[at] >= 0x80:
        at += 1
    return at + 1
