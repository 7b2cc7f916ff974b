"""Influx line protocol: `measurement,tag=value field=value,… time`.

Each field, with its line's tags, is a series. Names are those of Telegraf's prometheus output: measurement and field
joined by `_`, or the field alone if the measurement is `prometheus`. Characters that Prometheus does not allow become
`_`; at both ends of a name, they and `_` are removed. The protocol does not say whether a field is a counter, so its
series is of an unknown kind. True is 1 and false is 0; string fields are left out and counted. Each line costs one
look-up of its measurement with tags, as spelled, and one look-up of each field.

Source: influxdata, line protocol reference; telegraf, plugins/serializers/prometheus/convert.go.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kernelcast.bridge.inputs.formats import NANOSECONDS, TopicFormat
from kernelcast.bridge.inputs.interning import Spellings
from kernelcast.bridge.inputs.naming import NamedSeries
from kernelcast.bridge.inputs.parsing import MAX_UNUSED, Parsing, malformed, text_of
from kernelcast.bridge.inputs.rows import BatchRows
from kernelcast.wire.catalogue import Kind

FORMAT_TITLE: Final = "Influx line protocol"


BOOLEANS: Final = {
    **dict.fromkeys(("t", "T", "true", "True", "TRUE"), 1),
    **dict.fromkeys(("f", "F", "false", "False", "FALSE"), 0),
}
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_INTEGER: Final = re.compile(r"([+-]?[0-9]{1,20})[iu]", re.ASCII)
_HEAD: Final = re.compile(r"(?:[^\\ ]++|\\.?)++")
_FIELDS: Final = re.compile(r'(?:[^\\" ]++|\\.?|"(?:[^"\\]++|\\.)*+")++', re.DOTALL)
_FIELD: Final = re.compile(r'((?:[^\\,="]++|\\.?)++)=("(?:[^"\\]++|\\.)*+"|(?:[^\\",]++|\\.?)++)(?:,|$)', re.DOTALL)
_LINE: Final = re.compile(
    r"[ \t\r]*+(?!#)(?:[^\\ \n]++|\\[^\n]?)++ "
    r'(?:[^\\" \n]++|\\[^\n]?|"(?:[^"\\]++|\\.)*+")++[^\n]*+',
    re.DOTALL,
)
"""A line, but no comment, whose strings may have line feeds. Only in the fields is a quote a delimiter, so it is read from the left."""
_PIECE: Final = re.compile(r"(?:[^\\,]++|\\.?)++")
_PAIR: Final = re.compile(r"((?:[^\\=]++|\\.?)++)=((?:[^\\=]++|\\.?)++)")
_ESCAPE: Final = re.compile(r"\\([,= ])")
_NAME_START: Final = re.compile(r"^[^a-zA-Z:_]+")
_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9:_]")
_LABEL_START: Final = re.compile(r"^[^a-zA-Z_]+")
_NOT_IN_A_LABEL: Final = re.compile(r"[^a-zA-Z0-9_]")


class InfluxLines(Parsing):
    """Reads lines of the protocol; not thread-safe.

    Args:
        settings: The topic's settings, for the timestamps' unit.
        options: Keyword arguments of `Parsing`.
    """

    format = "influx"

    def __init__(self, settings: TopicFormat | None = None, **options: Any) -> None:
        super().__init__(settings, **options)
        self._scale = NANOSECONDS[settings.precision if settings is not None else "ns"]
        # By measurement with tags, as spelled: the series number of each field.
        self._heads: dict[str, Spellings] = {}

    def read(self, message: bytes, rows: BatchRows) -> None:
        """Read one message's lines.

        Raises:
            DecodeError: A line is malformed.
        """
        for untrimmed in _lines(text_of(message, FORMAT_TITLE)):
            line = untrimmed.strip()
            if not line or line[0] == "#":
                continue
            words = line.split(" ") if "\\" not in line and '"' not in line else _words(line)
            if not 2 <= len(words) <= 3 or not all(words):
                words = _words(line)
            self._read_line(line, words, rows)

    def drop_unused(self) -> None:
        """Drop measurements that have no series left, once they outnumber the series by more than MAX_UNUSED."""
        super().drop_unused()
        if len(self._heads) > len(self.interner) + MAX_UNUSED:
            self._heads = {head: known for head, known in self._heads.items() if known}

    def _read_line(self, line: str, words: list[str], rows: BatchRows) -> None:
        head, fields = words[0], words[1]
        time_ns = self._time_ns(words[2].strip()) if len(words) > 2 else 0
        known = self._heads.get(head)
        if known is None:
            _head(line, head)  # checks the tags, also of a line that has only string fields and never reaches `_admit`
            known = self._heads[head] = {}
        for name, value in _pairs(line, fields):
            number = known.get(name)
            found = _value(line, value)
            if found is None:
                rows.unsupported += 1
                continue
            if number is None:
                number = self._admit(line, head, known, name)
            rows.series.append(number)
            rows.time_ns.append(time_ns)
            rows.value.append(found)

    def _time_ns(self, text: str) -> int:
        """Return nanoseconds; 1 for a time before 1970. A line with time 0 is treated like a line without a time."""
        digits = text.removeprefix("-")
        time_ns = int(text) * self._scale if digits.isdigit() and digits.isascii() and len(digits) <= 20 else 2**64
        if time_ns >= 2**64:
            raise malformed(
                FORMAT_TITLE, "a timestamp", text, "a whole number before the year 2554, of the precision's unit"
            )
        return time_ns if time_ns >= 0 else 1

    def _admit(self, line: str, head: str, known: Spellings, field: str) -> int:
        measurement, tags = _head(line, head)
        plain_measurement, plain_field = _plain(measurement), _plain(field)
        name = plain_field if plain_measurement == "prometheus" else f"{plain_measurement}_{plain_field}"
        name = _NOT_IN_A_NAME.sub("_", _NAME_START.sub("", name)).strip("_")
        labels = [(_label(_plain(tag)), _plain(value)) for tag, value in tags]
        canonical = self.labels([(label, value) for label, value in labels if label])
        number = self.interner.add(NamedSeries(self.shared_family(name, Kind.UNKNOWN), canonical))
        self.interner.remember_spelling(number, known, field, number)
        return number


def _lines(text: str) -> Iterable[str]:
    """Return the lines of a text; a line feed within a string ends none."""
    return _lines_with_strings(text) if '"' in text else text.split("\n")


def _lines_with_strings(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        found = _LINE.match(text, at)
        end = found.end() if found is not None else text.find("\n", at)
        end = len(text) if end < 0 else end
        yield text[at:end]
        at = end + 1


def _head(line: str, head: str) -> tuple[str, list[tuple[str, str]]]:
    """Return measurement and tags, still escaped."""
    measurement, *tags = pieces = [piece[0] for piece in _PIECE.finditer(head)] or [""]
    pairs = [(pair[1], pair[2]) for tag in tags if (pair := _PAIR.fullmatch(tag))]
    if not measurement or ",".join(pieces) != head or len(pairs) < len(tags):
        raise malformed(FORMAT_TITLE, "a line", line, "a measurement, and tags as name=value")
    return measurement, pairs


def _words(line: str) -> list[str]:
    """Return the parts of a line: measurement with tags, fields, and the time if there is one."""
    head = _HEAD.match(line)
    fields = _FIELDS.match(line, head.end() + 1) if head else None
    if head is None or fields is None:
        raise malformed(FORMAT_TITLE, "a line", line, "measurement, fields and time with a space between each")
    words = [head[0], fields[0], *line[fields.end() :].split()]
    if len(words) > 3:
        raise malformed(FORMAT_TITLE, "a line", line, "nothing behind the timestamp")
    return words


def _pairs(line: str, fields: str) -> list[tuple[str, str]]:
    """Return names and values of fields, still escaped."""
    if '"' not in fields and "\\" not in fields:
        split = [field.split("=") for field in fields.split(",")]
        if all(len(pair) == 2 and pair[0] and pair[1] for pair in split):
            return [(name, value) for name, value in split]
    at, pairs = 0, []
    while at < len(fields):
        found = _FIELD.match(fields, at)
        if found is None:
            raise malformed(FORMAT_TITLE, "a line", line, "fields as name=value")
        pairs.append((found[1], found[2]))
        at = found.end()
    if not fields or fields.endswith(","):
        raise malformed(FORMAT_TITLE, "a line", line, "a field, and one behind every comma")
    return pairs


def _value(line: str, text: str) -> int | float | None:
    """Return a field's value; None for a string."""
    if _FLOAT.fullmatch(text):
        return float(text)
    whole = _INTEGER.fullmatch(text)
    if whole:
        return int(whole[1])
    if text in BOOLEANS:
        return BOOLEANS[text]
    if text.startswith('"'):
        return None
    raise malformed(
        FORMAT_TITLE, "a field of a line", text, f"a float, 1i, 1u, a boolean or a quoted string, in {line[:60]!r}"
    )


def _plain(text: str) -> str:
    return _ESCAPE.sub(r"\1", text) if "\\" in text else text


def _label(text: str) -> str:
    return _NOT_IN_A_LABEL.sub("_", _LABEL_START.sub("", text)).strip("_")
