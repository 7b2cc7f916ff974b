"""The grammar of Prometheus' text formats, as functions of one line, and the samples of a page.

`top`, the exporter's sources of pages and the bridge's input read with it; the bridge calls it once for each series. ::

    for sample in samples(page.split(LINE_FEED)):
        print(sample.name, sample.labels, sample.value)

Source: prometheus/docs, exposition_formats.md; prometheus/OpenMetrics, specification/OpenMetrics.md (1.0).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from kernelcast.wire.errors import DecodeError

LINE_FEED: Final = "\n"
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
_ESCAPE: Final = re.compile(r"\\.")
_UNESCAPED: Final = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
MAX_LABELS: Final = 10_000
"""Limit of one series; a message of 8 MiB could have a million in one line."""


class TextSample(NamedTuple):
    """One sample of a page; its time is left out."""

    name: str
    labels: dict[str, str]
    value: float


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


def samples(lines: Iterable[str]) -> Iterator[TextSample]:
    """Parse the samples of lines, which may be a part of a page; comments and empty lines are left out.

    Only a line feed ends a line: a page is split at `LINE_FEED`; `splitlines` also splits within labels.

    >>> [*samples(['a_total{b="c"} 1 1700000000000'])]
    [TextSample(name='a_total', labels={'b': 'c'}, value=1.0)]

    Raises:
        DecodeError: A line breaks the grammar.
    """
    for line in lines:
        text = line.strip(" \t\r")
        if text and not text.startswith("#"):
            parsed = series(text)
            yield TextSample(parsed.name, dict(parsed.labels), number(after_series(text[parsed.stop :], text)[0]))


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
            raise malformed("a line", line, "a metric's name, its labels in braces, and a value")
        return ParsedSeries(name, (), at)
    pairs, stop = labels(line, bare + 1)
    if not name:  # Prometheus 3 writes names of any character in quotes, inside the braces
        if not pairs or pairs[0][1] is not None:
            raise malformed("a line", line, "a metric's name")
        name, pairs = pairs[0][0], pairs[1:]
    whole = tuple((key, value) for key, value in pairs if value is not None)
    if len(whole) != len(pairs):
        raise malformed("a line", line, "a value for every label")
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
            raise malformed("a line", line, 'labels as {name="value",…}')
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
        raise malformed("a value", text, "a number, NaN, +Inf or -Inf")
    return float(text)


def time_ns(text: str, *, seconds: bool) -> int:
    """A timestamp in nanoseconds; a time before 1970 is the first nanosecond, because 0 says that there is none.

    Raises:
        DecodeError: It is no timestamp, or beyond the year 2554.
    """
    whole = text.removeprefix("-")
    if not seconds:
        if not (whole.isascii() and whole.isdigit()):
            raise malformed("a timestamp", text, "whole milliseconds since 1970")
        scaled = int(text) * 1_000_000 if len(text) < 20 else 2**64
    else:
        value = number(text)
        if not -LAST_SECOND < value < LAST_SECOND:
            raise malformed("a timestamp", text, "seconds between 1970 and 2554")
        head, _, tail = text.partition(".")
        exact = head.isdigit() and (tail.isdigit() or not tail)
        scaled = int(head) * 10**9 + int(tail[:9].ljust(9, "0")) if exact else round(value * 1e9)
    if scaled >= 2**64:
        raise malformed("a timestamp", text, "a time before the year 2554")
    return max(scaled, 1)


def after_series(rest: str, line: str) -> list[str]:
    """The rest of a line after the series, without exemplar: the value, and the timestamp where there is one.

    Raises:
        DecodeError: It is neither one word nor two.
    """
    words = rest.partition(" # ")[0].split()
    if not 1 <= len(words) <= 2:
        raise malformed("a line", line, "a value and at most one timestamp behind the series")
    return words


def comment(line: str) -> tuple[str, str, str]:
    """A line that begins with `#`: HELP, TYPE or UNIT with its family and text; or nothing of these, all empty."""
    found = _COMMENT.match(line)
    if found is None:
        return "", "", ""
    word, quoted, bare, text = found.groups()
    text = text.strip()
    return word, bare or unescaped(quoted), unescaped(text) if word == "HELP" else text


def unescaped(value: str) -> str:
    r"""A label's value as it was before escaping; unknown escapes stay as they are."""
    return _ESCAPE.sub(lambda found: _UNESCAPED.get(found[0], found[0]), value) if "\\" in value else value


def malformed(where: str, found: str, expected: str) -> DecodeError:
    """The error for text that breaks the grammar."""
    return DecodeError(
        f"message is no {FORMAT_TITLE}: {where} has {found[:120]!r}; expected {expected}; look at the producer, and at "
        "the setting that names this format"
    )
