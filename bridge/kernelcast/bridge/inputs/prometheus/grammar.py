"""The grammar of Prometheus' text formats: functions of one line, which `text` calls for lines it has not seen.

Source: prometheus/docs, exposition_formats.md; prometheus/OpenMetrics, specification/OpenMetrics.md (1.0).
"""

import re
from dataclasses import dataclass
from typing import Final

from kernelcast.bridge.inputs.naming import unescaped
from kernelcast.bridge.inputs.parsing import malformed
from kernelcast.wire.errors import DecodeError

FORMAT_TITLE: Final = "Prometheus text"
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(
    r'[ \t]*(?:([a-zA-Z_][a-zA-Z0-9_]*)|"((?:[^"\\]++|\\.)*+)")[ \t]*(?:=[ \t]*"((?:[^"\\]++|\\.)*+)")?[ \t]*([,}])'
)
_COMMENT: Final = re.compile(r'#\s*(HELP|TYPE|UNIT)\s+(?:"((?:[^"\\]++|\\.)*+)"(?=\s|$)|(\S+))(.*)', re.DOTALL)
_CLOSED: Final = re.compile(r"[ \t]*\}")
_NUMBER: Final = re.compile(
    r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf(?:inity)?|nan)", re.ASCII | re.IGNORECASE
)
LAST_SECOND: Final = 2**64 // 10**9
"""The year 2554: nanoseconds beyond it do not fit 64 bits."""
MAX_LABELS: Final = 10_000
"""Limit of one series; a message of 8 MiB could have a million in one line."""


@dataclass(frozen=True, slots=True)
class ParsedSeries:
    """The series at the start of a line.

    Attributes:
        name: The sample's name.
        labels: Its labels, in the line's order.
        stop: Where it ends in the line.
    """

    name: str
    labels: tuple[tuple[str, str], ...]
    stop: int


def series(line: str) -> ParsedSeries:
    """Parse the series at a line's start.

    Raises:
        DecodeError: There is none.
    """
    found = _NAME.match(line)
    name = found[0] if found else ""
    at = found.end() if found else 0
    bare = len(line) - len(line[at:].lstrip(" \t"))
    if line[bare : bare + 1] != "{":
        if not name or line[at : at + 1] not in (" ", "\t"):
            raise malformed(FORMAT_TITLE, "a line", line, "a metric's name, its labels in braces, and a value")
        return ParsedSeries(name, (), at)
    pairs, stop = labels(line, bare + 1)
    if not name:  # Prometheus 3 writes names of any character in quotes, inside the braces
        if not pairs or pairs[0][1] is not None:
            raise malformed(FORMAT_TITLE, "a line", line, "a metric's name")
        name, pairs = pairs[0][0], pairs[1:]
    whole = tuple((key, value) for key, value in pairs if value is not None)
    if len(whole) != len(pairs):
        raise malformed(FORMAT_TITLE, "a line", line, "a value for every label")
    return ParsedSeries(name, whole, stop)


def labels(line: str, at: int) -> tuple[list[tuple[str, str | None]], int]:
    """Labels from behind the opening brace on, and where they end; a quoted name without a value has None.

    Raises:
        DecodeError: They break the grammar, or are too many.
    """
    found_labels: list[tuple[str, str | None]] = []
    while not (closed := _CLOSED.match(line, at)):
        found = _LABEL.match(line, at)
        if found is None:
            raise malformed(FORMAT_TITLE, "a line", line, 'labels as {name="value",…}')
        if len(found_labels) >= MAX_LABELS:
            raise DecodeError(
                f"message has a series with more than {MAX_LABELS} labels: {line[:120]!r}; look at the producer"
            )
        bare, quoted, value, end = found.groups()
        found_labels.append((bare or unescaped(quoted or ""), None if value is None else unescaped(value)))
        at = found.end()
        if end == "}":
            return found_labels, at
    return found_labels, closed.end()


def number(text: str) -> float:
    """A value as Go and Prometheus read it.

    Raises:
        DecodeError: It is none.
    """
    if not _NUMBER.fullmatch(text):
        raise malformed(FORMAT_TITLE, "a value", text, "a number, NaN, +Inf or -Inf")
    return float(text)


def time_ns(text: str, *, seconds: bool) -> int:
    """A timestamp in nanoseconds; a time before 1970 is the first nanosecond, because 0 says that there is none.

    Raises:
        DecodeError: It is no timestamp, or beyond the year 2554.
    """
    whole = text.removeprefix("-")
    if not seconds:
        if not (whole.isascii() and whole.isdigit()):
            raise malformed(FORMAT_TITLE, "a timestamp", text, "whole milliseconds since 1970")
        scaled = int(text) * 1_000_000 if len(text) < 20 else 2**64
    else:
        value = number(text)
        if not -LAST_SECOND < value < LAST_SECOND:
            raise malformed(FORMAT_TITLE, "a timestamp", text, "seconds between 1970 and 2554")
        head, _, tail = text.partition(".")
        exact = head.isdigit() and (tail.isdigit() or not tail)
        scaled = int(head) * 10**9 + int(tail[:9].ljust(9, "0")) if exact else round(value * 1e9)
    if scaled >= 2**64:
        raise malformed(FORMAT_TITLE, "a timestamp", text, "a time before the year 2554")
    return max(scaled, 1)


def after_series(rest: str, line: str) -> list[str]:
    """The rest of a line after the series, without exemplar: the value, and the timestamp where there is one.

    Raises:
        DecodeError: It is neither one word nor two.
    """
    words = rest.partition(" # ")[0].split()
    if not 1 <= len(words) <= 2:
        raise malformed(FORMAT_TITLE, "a line", line, "a value and at most one timestamp behind the series")
    return words


def comment(line: str) -> tuple[str, str, str]:
    """A line that begins with `#`: HELP, TYPE or UNIT with its family and text; or nothing of these, all empty."""
    found = _COMMENT.match(line)
    if found is None:
        return "", "", ""
    word, quoted, bare, text = found.groups()
    text = text.strip()
    return word, bare or unescaped(quoted), unescaped(text) if word == "HELP" else text
