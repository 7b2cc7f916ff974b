"""JSON without a standard schema, read by the mapping in its topic's settings; `Selection` makes one per mapping.

A point without a name or a number is left out and counted as unsupported, so the count shows a mapping that does not
fit. The whole message is refused if it is not JSON, or if a point has an invalid time.
"""

import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kernelcast.bridge.inputs.formats import KINDS, NANOSECONDS, TopicFormat
from kernelcast.bridge.inputs.json.text import loads
from kernelcast.bridge.inputs.json_paths import JsonPath, Trail
from kernelcast.bridge.inputs.naming import metric_name
from kernelcast.bridge.inputs.parsing import Parsing
from kernelcast.bridge.inputs.rows import BatchRows
from kernelcast.wire.catalogue import Kind
from kernelcast.wire.errors import DecodeError

_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?Inf(?:inity)?|NaN", re.ASCII)
_RFC_3339: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}):([0-9]{2})(?:\.([0-9]*))?([Zz]|[+-][0-9]{2}:[0-9]{2})?"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WORDS: Final = {True: "true", False: "false"}

PathOrConstant = JsonPath | str
"""A path, or a constant."""


class JsonMapped(Parsing):
    """Reads JSON by a mapping; not thread-safe.

    Args:
        mapping: The topic's settings.
        options: Keyword arguments of `Parsing`.
    """

    format = "json"

    def __init__(self, mapping: TopicFormat, **options: Any) -> None:
        super().__init__(mapping, **options)
        self._points = mapping.points_path
        self._lines, self._scale = mapping.lines, NANOSECONDS[mapping.time_unit]
        self._kind = _path_or_constant(mapping.kind)
        # The setting `value` leads to one number; `values` leads to an object, and each of its members is a series.
        self._fixed_kind = KINDS[self._kind] if isinstance(self._kind, str) else None
        by_kind = mapping.value if isinstance(mapping.value, dict) else {"": mapping.value}
        self._numbers = [
            (KINDS.get(kind, self._fixed_kind), JsonPath.parse(text))
            for kind, texts in by_kind.items()
            for text in texts
        ]
        self._objects = [JsonPath.parse(text) for text in mapping.values]
        self._name = [_path_or_constant(text) for text in mapping.name]
        self._help, self._unit = _path_or_constant(mapping.help), _path_or_constant(mapping.unit)
        self._time = [JsonPath.parse(text) for text in mapping.time]
        self._increments = [(JsonPath.parse(text), mark) for text, mark in mapping.increments.items()]
        self._labels = [(label, _path_or_constant(text)) for label, text in mapping.labels.items()]
        self._label_objects = self._with_exceptions(mapping)

    def read(self, message: bytes, rows: BatchRows) -> None:
        """Read one message.

        Raises:
            DecodeError: It is not JSON, has an invalid time, or exceeds a limit.
        """
        for value in self._values(message):
            for trail in self._trails(value):
                self._read_point(trail, rows)

    def _values(self, message: bytes) -> Iterator[Any]:
        if not self._lines:
            yield loads(message)
            return
        for line in message.split(b"\n"):
            if line and not line.isspace():
                yield loads(line)

    def _trails(self, value: Any) -> Iterator[Trail]:
        if not self._points.steps and isinstance(value, list):
            return ((value, item) for item in value)
        return self._points.find_all(value)

    def _with_exceptions(self, mapping: TopicFormat) -> list[tuple[JsonPath, frozenset[str], bool]]:
        """Return the objects of labels, each with the members that make none, and whether its numbers are values."""
        constants = (self._kind, self._help, self._unit, *self._name)
        others = [path for path in constants if isinstance(path, JsonPath)]
        others += [*self._time, *(path for _, path in self._numbers), *(path for path, _ in self._increments)]
        one_point = not self._points.steps  # `$`, the message, is then the point as well
        used = [_seen_from_point(path, one_point=one_point) for path in others]
        objects = [_seen_from_point(path, one_point=one_point) for path in self._objects]
        found = []
        for text in mapping.labels_from:
            path = JsonPath.parse(text)
            here = _seen_from_point(path, one_point=one_point)
            members = {str(each.member) for each in used if each.parent == here and isinstance(each.member, str)}
            found.append((path, frozenset((*members, *mapping.labels_without)), here in objects))
        return found

    def _read_point(self, trail: Trail, rows: BatchRows) -> None:
        for path, mark in self._increments:
            if _as_text(path.find(trail)) == mark:
                raise DecodeError(
                    f"a point is an increment ({mark!r} in the field that bridge.formats names under increments), and "
                    "the bridge reads totals; let a Collector add increments up: deploy/collector/delta.yaml"
                )
        name = metric_name(self._name_of(trail))
        if not name:
            rows.unsupported += 1
            return
        for kind, path in self._numbers:
            value = _as_number(path.find(trail))
            if value is not None:
                self._add_value(trail, name, kind, value, rows)
                return
        self._add_members(trail, name, rows)

    def _name_of(self, trail: Trail) -> str:
        for reading in self._name:
            name = reading if isinstance(reading, str) else _as_text(reading.find(trail))
            if name:
                return name
        return ""

    def _add_members(self, trail: Trail, name: str, rows: BatchRows) -> None:
        """Add each number of an object as a series."""
        members = next((found for path in self._objects if isinstance(found := path.find(trail), dict)), None)
        if members is None:
            rows.unsupported += 1
            return
        for key, member in members.items():
            value = _as_number(member)
            if value is None:
                rows.unsupported += 1
            else:
                self._add_value(trail, f"{name}_{key}", self._fixed_kind, value, rows)

    def _add_value(self, trail: Trail, name: str, kind: Kind | None, value: float, rows: BatchRows) -> None:
        found = None
        for path in self._time:
            found = path.find(trail)
            if found is not None:
                break
        time_ns = self._time_ns(found) if found is not None else 0
        if kind is None:
            kind = KINDS.get(_as_text(_resolve(self._kind, trail)) or "", Kind.UNKNOWN)
        help_text = (_as_text(_resolve(self._help, trail)) or "") if self._help else ""
        unit = (_as_text(_resolve(self._unit, trail)) or "") if self._unit else ""
        labels = self._labels_of(trail)
        self.add(rows, name, labels, value, time_ns=time_ns, kind=kind, help_text=help_text, unit=unit)

    def _labels_of(self, trail: Trail) -> dict[str, str]:
        """Return the labels of a point; a label of the setting `labels` replaces one of `labels_from`."""
        labels: dict[str, str] = {}
        for path, without, numbers_are_values in self._label_objects:
            members = path.find(trail)
            for name, member in members.items() if isinstance(members, dict) else ():
                text = member if member.__class__ is str else _as_text(member)
                if not text or name in without or name[:2] == "__":
                    continue
                if not numbers_are_values or _as_number(member) is None:
                    labels[name] = text
        for label, reading in self._labels:
            text = _as_text(_resolve(reading, trail))
            if text:
                labels[label] = text
        return labels

    def _time_ns(self, found: Any) -> int:
        """Return nanoseconds; 0 without a time, and 1 for a time before 1970. The time 0 is treated like none."""
        if found is None:
            return 0
        number = _as_number(found)
        try:
            if number is None:
                time_ns = _time_of_text(found)
            else:
                time_ns = number * self._scale if isinstance(number, int) else round(number * self._scale)
        except (TypeError, ValueError, OverflowError):
            time_ns = 2**64
        if time_ns >= 2**64:
            raise DecodeError(
                f"a point's time is {str(found)[:60]!r}; it must be a number before the year 2554, or RFC 3339 text; "
                "look at time and time_unit in the topic's entry in bridge.formats"
            )
        return max(time_ns, 1) if time_ns else 0


def _time_of_text(text: str) -> int:
    """Return nanoseconds of RFC 3339 text, or of another form of ISO 8601; without an offset it is UTC.

    Raises:
        ValueError: It is neither.
        TypeError: It is no text.
    """
    found = _RFC_3339.fullmatch(text)
    start, seconds, fraction, offset = found.groups("") if found else (text, "0", "", "")
    if int(seconds) > 60:  # 60 is a leap second
        raise ValueError(text)
    moment = datetime.fromisoformat((f"{start}:00{offset}" if found else start).upper())
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    whole_ns = (moment - _EPOCH) // timedelta(microseconds=1) * 1000
    return whole_ns + int(seconds) * 10**9 + int(fraction[:9].ljust(9, "0"))


def _seen_from_point(path: JsonPath, *, one_point: bool) -> JsonPath:
    return JsonPath(0, path.steps) if one_point and path.up < 0 else path


def _path_or_constant(text: str) -> PathOrConstant:
    return JsonPath.parse(text) if text[:1] in ("$", "@", "^") else text


def _resolve(reading: PathOrConstant, trail: Trail) -> Any:
    return reading if isinstance(reading, str) else reading.find(trail)


def _as_text(value: Any) -> str | None:
    """Return a scalar as text; None for arrays, objects and null."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return _WORDS[value]
    if isinstance(value, int):
        return str(value)
    return repr(value).removesuffix(".0") if isinstance(value, float) else None


def _as_number(value: Any) -> int | float | None:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return value
    if isinstance(value, str) and len(value) < 400 and _NUMBER.fullmatch(value):
        number = float(value)
        whole = int(value) if math.isfinite(number) and value.lstrip("+-").isdigit() else None
        return number if whole is None else whole
    return None
