"""The same messages, read slowly and plainly, one character or one protobuf object at a time: the parsers' oracles.

Nothing here is shared with the parsers but the rules of the formats. A reading gives each number point's name, labels,
value and time; None refuses the message.
"""

import math
import re
import struct
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError as ProtobufError

from kernelcast.bridge.inputs.remote_write.schema import LABEL, REQUEST, WRITE_REQUEST

Point = tuple[str, tuple[tuple[str, str], ...], bytes, int]
"""Name, labels without empty ones, bits of the value, time in nanoseconds."""


class RefusedError(Exception):
    """The message breaks its format."""


def bits(value: float) -> bytes:
    """A double's bytes; every NaN that is not the stale marker is one NaN."""
    packed = struct.pack("<d", value)
    return packed if value == value or packed == bytes.fromhex("020000000000f07f") else b"NaN"  # noqa: PLR0124


def point(name: str, labels: dict[str, str], value: float, time_ns: int) -> Point:
    return name, tuple(sorted((key, text) for key, text in labels.items() if text)), bits(value), time_ns


class Reader:
    """A position in a text."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self) -> str:
        character = self.peek()
        if not character:
            raise RefusedError
        self.at += 1
        return character

    def take_while(self, allowed: str) -> str:
        start = self.at
        while self.peek() and self.peek() in allowed:
            self.at += 1
        return self.text[start : self.at]


LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
DIGITS = "0123456789"


def prometheus_line(line: str) -> Point:
    """One sample line of text 0.0.4, of names without quotes, without exemplar."""
    reader = Reader(line)
    name = reader.take_while(LETTERS + DIGITS + ":")
    if not name or name[0] in DIGITS:
        raise RefusedError
    after_name = reader.take_while(" \t")
    labels: dict[str, str] = {}
    if reader.peek() == "{":
        reader.take()
        labels = _prometheus_labels(reader)
    elif not after_name:
        raise RefusedError
    words = line[reader.at :].split()
    if not 1 <= len(words) <= 2:
        raise RefusedError
    value = _go_float(words[0])
    return point(name, labels, value, _milliseconds(words[1]) if len(words) == 2 else 0)


def _prometheus_labels(reader: Reader) -> dict[str, str]:
    found: list[tuple[str, str]] = []
    while True:
        reader.take_while(" \t")
        if reader.peek() == "}":
            reader.take()
            return _joined(found)
        key = reader.take_while(LETTERS + DIGITS)
        if not key or key[0] in DIGITS:
            raise RefusedError
        reader.take_while(" \t")
        if reader.take() != "=":
            raise RefusedError
        reader.take_while(" \t")
        if reader.take() != '"':
            raise RefusedError
        found.append((key, _quoted(reader)))
        reader.take_while(" \t")
        end = reader.take()
        if end == "}":
            return _joined(found)
        if end != ",":
            raise RefusedError


def _quoted(reader: Reader) -> str:
    value = ""
    while (character := reader.take()) != '"':
        if character == "\\":
            following = reader.take()
            value += {"n": "\n", "\\": "\\", '"': '"'}.get(following, "\\" + following)
        else:
            value += character
    return value


def _joined(found: list[tuple[str, str]]) -> dict[str, str]:
    labels: dict[str, list[str]] = {}
    for key, value in found:
        if value:
            if key.startswith("__"):
                key = "_" + key.lstrip("_")  # noqa: PLW2901  reserved names lose their second underscore
                key = re.sub("_+", "_", key)  # noqa: PLW2901
            if value not in labels.setdefault(key, []):
                labels[key].append(value)
    return {key: ";".join(values) for key, values in labels.items()}


def _go_float(word: str) -> float:
    plain = word.lstrip("+-") if len(word) - len(word.lstrip("+-")) <= 1 else "x"
    if plain.lower() in ("inf", "infinity", "nan"):
        return math.nan if plain.lower() == "nan" else math.copysign(math.inf, -1 if word[0] == "-" else 1)
    if not plain or any(character not in "0123456789.eE+-" for character in plain):
        raise RefusedError
    try:
        return float(word)
    except ValueError:
        raise RefusedError from None


def _milliseconds(word: str) -> int:
    digits = word.removeprefix("-")
    if not digits or any(character not in DIGITS for character in digits) or int(digits) * 10**6 >= 2**64:
        raise RefusedError
    return max(int(word) * 10**6, 1)


def prometheus(message: bytes) -> list[Point] | None:
    """A page of text 0.0.4 without metadata."""
    try:
        text = message.decode("utf-8-sig")
        lines = [line.lstrip(" \t") for line in text.split("\n") if line.strip()]
        return [prometheus_line(line) for line in lines if line[0] != "#"]
    except (RefusedError, UnicodeDecodeError):
        return None


def influx(message: bytes) -> list[Point] | None:
    """Influx lines, with nanoseconds."""
    try:
        lines = [line.strip() for line in _influx_lines(message.decode("utf-8-sig"))]
        return [found for line in lines if line and line[0] != "#" for found in _influx_line(line)]
    except (RefusedError, UnicodeDecodeError):
        return None


def _influx_lines(text: str) -> Iterator[str]:
    """Lines, whose fields may have strings with line feeds."""
    at = 0
    while at < len(text):
        start, quoted, part = at, False, "blank"
        while at < len(text) and (quoted or text[at] != "\n"):
            character = text[at]
            if part == "blank" and character not in " \t\r":
                part = "comment" if character == "#" else "head"
            if character == '"' and part == "fields":
                quoted = not quoted
            if character == " " and not quoted:
                part = {"head": "fields", "fields": "time"}.get(part, part)
            is_escape = character == "\\" and part in ("head", "fields")
            at += 2 if is_escape and (quoted or text[at + 1 : at + 2] != "\n") else 1
        yield text[start:at]
        at += 1


def _influx_pieces(line: str) -> tuple[str, str, list[str]]:
    """Head, fields and the rest: spaces divide, unless escaped, or, in fields, quoted."""
    at = 0
    while at < len(line) and line[at] != " ":
        at += 2 if line[at] == "\\" else 1
    head, start, quoted = line[:at], at + 1, False
    at = start
    while at < len(line) and (quoted or line[at] != " "):
        if line[at] == '"':
            quoted = not quoted
        at += 2 if line[at] == "\\" else 1
    if quoted or not head:
        raise RefusedError
    return head, line[start:at], line[at:].split()


def _split(text: str, separator: str, *, quotes: bool = False) -> list[str]:
    parts, at, start, quoted = [], 0, 0, False
    while at < len(text):
        if quotes and text[at] == '"':
            quoted = not quoted
        if text[at] == separator and not quoted:
            parts.append(text[start:at])
            start = at + 1
        at += 2 if text[at] == "\\" else 1
    return [*parts, text[start:]]


def _unescape(text: str) -> str:
    for character in ",= ":
        text = text.replace("\\" + character, character)
    return text


def _influx_line(line: str) -> list[Point]:
    head, fields, behind = _influx_pieces(line)
    if len(behind) > 1:
        raise RefusedError
    time_ns = _nanoseconds(behind[0]) if behind else 0
    measurement, *tags = _split(head, ",")
    pairs = [_split(tag, "=") for tag in tags]
    if not measurement or any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise RefusedError
    found = []
    for field in _split(fields, ",", quotes=True):
        parts = _split(field, "=", quotes=True)
        if len(parts) != 2 or not all(parts) or '"' in parts[0].replace('\\"', ""):
            raise RefusedError
        value = _influx_value(parts[1])
        if value is not None:
            found.append(_influx_point(_unescape(measurement), _unescape(parts[0]), pairs, value, time_ns))
    return found


def _influx_point(measurement: str, field: str, pairs: list[list[str]], value: float, time_ns: int) -> Point:
    name = field if measurement == "prometheus" else f"{measurement}_{field}"
    labels: list[tuple[str, str]] = []
    for key, text in pairs:
        legal = _legal(_unescape(key), LETTERS)
        if legal:
            labels.append((_label(legal), _unescape(text)))
    legal_name = _legal(name, LETTERS + ":")
    return point("_" * (legal_name[:1] in tuple(DIGITS)) + legal_name, _joined(labels), value, time_ns)


def _legal(name: str, first: str) -> str:
    while name and name[0] not in first:
        name = name[1:]
    return "".join(c if c in first + DIGITS else "_" for c in name).strip("_")


def _nanoseconds(word: str) -> int:
    digits = word.removeprefix("-")
    if len(digits) > 20 or not digits or any(character not in DIGITS for character in digits) or int(digits) >= 2**64:
        raise RefusedError
    return int(word) if int(word) >= 0 else 1


def _influx_value(text: str) -> float | None:
    if text in ("t", "T", "true", "True", "TRUE"):
        return 1.0
    if text in ("f", "F", "false", "False", "FALSE"):
        return 0.0
    if text[:1] == '"':
        reader = Reader(text[1:])
        _quoted(reader)
        if reader.peek():
            raise RefusedError
        return None
    number = text[:-1] if text[-1:] in ("i", "u") else text
    plain = number[1:] if number[:1] in ("+", "-") else number
    allowed = DIGITS if number is not text else DIGITS + ".eE+-"
    if not plain or any(character not in allowed for character in plain) or (number is not text and len(plain) > 20):
        raise RefusedError
    try:
        return float(number)
    except ValueError:
        raise RefusedError from None


def remote_write(body: bytes) -> list[Point] | None:
    """A bare request of either version, through protobuf's objects."""
    try:
        if body[:1] in (b"\x22", b"\x2a"):
            return _version_2(REQUEST.FromString(body))
        return _version_1(WRITE_REQUEST.FromString(body))
    except (ProtobufError, RefusedError, IndexError):
        return None


def has_histograms(body: bytes) -> bool:
    """Whether a bare request has native histograms, which `remote_write` does not read."""
    try:
        made = (REQUEST if body[:1] in (b"\x22", b"\x2a") else WRITE_REQUEST).FromString(body)
    except ProtobufError:
        return False
    return any(series.histograms for series in made.timeseries)


def _version_1(request: Any) -> list[Point]:
    found = []
    for series in request.timeseries:
        if series.samples or series.histograms:
            labels = [(label.name, label.value) for label in map(LABEL.FromString, series.labels)]
            found += [_sample(labels, sample) for sample in series.samples]
    return found


def _version_2(request: Any) -> list[Point]:
    found = []
    for series in request.timeseries:
        texts = [request.symbols[ref] for ref in series.labels_refs]
        if series.samples or series.histograms:
            if len(texts) % 2:
                raise RefusedError
            found += [_sample(list(zip(texts[::2], texts[1::2], strict=True)), sample) for sample in series.samples]
    return found


def _sample(labels: list[tuple[str, str]], sample: Any) -> Point:
    name = next((value for key, value in labels if key == "__name__"), "")
    rest = [(key, value) for key, value in labels if key != "__name__"]
    time_ns = sample.timestamp * 10**6
    if time_ns >= 2**64 or sample.start_timestamp * 10**6 >= 2**64:
        raise RefusedError
    legal = "".join(c if c in LETTERS + DIGITS + ":" else "_" for c in name)
    return point(
        f"_{legal}" if legal[:1] in DIGITS and legal else legal,
        _joined([(_label(key), value) for key, value in rest]),
        sample.value,
        time_ns if time_ns >= 0 else 1,
    )


def _label(key: str) -> str:
    if key and not key.startswith("__") and key[0] not in DIGITS and all(c in LETTERS + DIGITS for c in key):
        return key
    name = re.sub("[^a-zA-Z0-9]+", "_", key) or "_"
    return f"key_{name}" if name[0] in DIGITS else name
