"""Chrome's trace JSON: the events of a file, and of a damaged one the events that can be read.

Sources: Chrome's Trace Event Format (a list of events needs no `]`); PyTorch writes `"Process Group Description": ,`,
`nan`, `inf`, control characters and single backslashes, and a job that dies leaves a file that ends anywhere.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import orjson

from kernelcast.exporter.replay.formats.content import Content
from kernelcast.exporter.replay.plausibility import counted
from kernelcast.wire.errors import TraceError

Event = Mapping[str, Any]

SHOWN_PLACES: Final = 5

_TEXT: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_NO_JSON_NUMBER: Final = re.compile(
    rf"({_TEXT})|-?\b(?:inf(?:inity)?|nan|(?<!\.)\d{{400,}}(?!\.))\b", re.IGNORECASE | re.DOTALL
)
"""A number that JSON does not have or no float holds, or, in the group, text, which may contain the same letters."""
_NO_VALUE: Final = re.compile(rf"({_TEXT})|(?<=:)(\s*)(?=[,}}\]])", re.DOTALL)
_LAST_COMMA: Final = re.compile(rf"({_TEXT})|,(?=\s*[}}\]])", re.DOTALL)
_NO_ESCAPE: Final = re.compile(r'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|)')
_LISTED: Final = re.compile(r'"traceEvents"\s*:\s*\[')
_BARE_LIST: Final = re.compile(r"\s*\[")
_NEXT_EVENT: Final = re.compile(r',\s*(?=\{\s*"(?:ph|cat|name|pid|tid|ts|dur|id|s|bp|args)"\s*:)')
"""Between a damaged event and the next."""
_LAST_EVENT: Final = re.compile(r'\}(?=\s*\](?:\s*,\s*"(?:[^"\\]|\\.)*"\s*:|\s*\}?\s*$))')
"""The end of a damaged event that is the last."""
_BETWEEN: Final = re.compile(r"[\s,]*")


class ExactFloat(float):
    """A float that knows its text: microseconds since 1970 have nanoseconds that no float holds."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        """Keep the text beside the number."""
        number = super().__new__(cls, text)
        number.text = text
        return number


@dataclass(slots=True)
class ChromeTrace:
    """The events of a file.

    Attributes:
        events: Those that were read, in order.
        head: The fields beside them.
        repaired: Events that were read without a value that is no JSON.
        damaged: Events that could not be read.
        places: Where the first of both are.
        end: How the file ends, where its end is missing; empty else.
    """

    events: list[Event] = field(default_factory=list)
    head: Event = field(default_factory=dict)
    repaired: int = 0
    damaged: int = 0
    places: list[str] = field(default_factory=list)
    end: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what was not read."""
        said = []
        where = ", ".join(self.places[:SHOWN_PLACES]) + ("" if len(self.places) <= SHOWN_PLACES else ", …")
        if self.damaged:
            said.append(
                f"{counted(self.damaged, 'damaged event')} of {self.damaged + len(self.events)} left out: {where}"
            )
        if self.repaired:
            said.append(f"{counted(self.repaired, 'damaged event')} read without the value that is no JSON: {where}")
        if self.end:
            said.append(f"its end is missing: {self.end}")
        return tuple(said)


def read(path: Path, content: Content, *, exact: bool = False) -> ChromeTrace:
    """Parse a file: whole where it is JSON, else event by event.

    Args:
        path: The file, for messages.
        content: What it holds.
        exact: Keep the text of numbers with a fraction, as `ExactFloat`; slower.

    Raises:
        TraceError: It is no Chrome trace, or no event of it can be read.
    """
    try:
        document = _lenient(content.text) if exact else orjson.loads(content.text)
    except ValueError:  # orjson's is one too
        document = None
    except RecursionError as error:
        raise _no_json(path, content, f"too deep: {error}") from error
    if document is None:
        try:
            document = _lenient(content.text)
        except (ValueError, RecursionError) as error:
            trace = _Salvage(content.text.decode(errors="replace")).trace()
            if not trace.events:
                raise _no_json(path, content, str(error)) from error
            if content.damage and trace.end:
                trace.end = f"{trace.end}; gzip: {content.damage}"
            return trace
    return _whole(path, document)


def _lenient(text: bytearray) -> Any:
    """JSON with what older versions of PyTorch leave in it: `nan`, `inf` and control characters."""
    lenient = text.decode(errors="replace")
    try:
        return json.loads(lenient, strict=False, parse_float=ExactFloat)
    except RecursionError:
        raise
    except ValueError:  # for `inf`, and for more digits than `int` accepts
        return json.loads(_without_odd_numbers(lenient), strict=False, parse_float=ExactFloat)


def _no_json(path: Path, content: Content, reason: str) -> TraceError:
    if content.damage:
        return TraceError(f"{path} is damaged gzip: {content.damage}; copy or record it again")
    return TraceError(f"{path} is not JSON: {reason}; record or copy the trace again")


def _whole(path: Path, document: Any) -> ChromeTrace:
    listed = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(listed, list):
        raise TraceError(
            f"{path} is JSON but no Chrome trace: it has no list `traceEvents`; give a file that torch.profiler wrote"
        )
    trace = ChromeTrace(listed, document if isinstance(document, dict) else {})
    odd = [position for position, event in enumerate(listed) if not isinstance(event, dict)]
    if odd and len(odd) == len(listed):
        raise TraceError(
            f"{path} is no Chrome trace: event {odd[0]} is {type(listed[odd[0]]).__name__}, not an object; "
            "give a file that torch.profiler wrote"
        )
    if odd:
        trace.events = [event for event in listed if isinstance(event, dict)]
        trace.damaged = len(odd)
        trace.places = [f"event {position}" for position in odd]
    return trace


class _Salvage:
    """Reads a text that is no JSON event by event."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._decoder = json.JSONDecoder(strict=False, parse_float=ExactFloat)
        self._lines = [match.start() for match in re.finditer("\n", text)]
        self._trace = ChromeTrace()

    def trace(self) -> ChromeTrace:
        """Return what can be read; without events where there is no list of events."""
        begun = _LISTED.search(self._text) or _BARE_LIST.match(self._text)
        if begun is None:
            return self._trace
        in_object = begun.re is _LISTED
        end = self._events(begun.end())
        if end > len(self._text):
            end = len(self._text)
            if in_object and not self._trace.end:  # a bare list needs no end
                self._trace.end = f"no event follows line {self._line(end)}"
        if in_object:
            self._trace.head = self._fields(self._text[: begun.start()], self._text[end:])
        return self._trace

    def _events(self, position: int) -> int:
        """Read the list; returns where it ends, a place beyond the text if its end is missing."""
        text = self._text
        while True:
            position = _BETWEEN.match(text, position).end()  # type: ignore[union-attr]  # it matches nothing, too
            if position >= len(text):
                return len(text) + 1
            if text[position] == "]":
                return position + 1
            position = self._event(position)

    def _event(self, position: int) -> int:
        """Read one event; returns where it ends, which is the text's end if the file ends within it."""
        text = self._text
        try:
            event, end = self._decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            event, end = None, self._end_of_damaged(position)
            if end < 0:
                self._trace.end = (
                    f"the file ends within an event at line {self._line(position)}, "
                    f"{len(text) - position:,} characters after the last whole one"
                )
                return len(text)
            event = self._repaired(text[position:end])
            if event is not None:
                self._trace.repaired += 1
                self._trace.places.append(f"line {self._line(position)}")
        if isinstance(event, dict):
            self._trace.events.append(event)
        else:
            self._trace.damaged += 1
            self._trace.places.append(f"line {self._line(position)}")
        return end

    def _end_of_damaged(self, position: int) -> int:
        """Where a damaged event ends; -1 where the file ends within it."""
        following = _NEXT_EVENT.search(self._text, position)
        if following:
            return following.start()
        last = _LAST_EVENT.search(self._text, position)
        return last.end() if last else -1

    def _repaired(self, text: str) -> Event | None:
        for repair in _REPAIRS:
            text = repair(text)
            try:
                event = self._decoder.decode(text)
            except (ValueError, RecursionError):
                continue
            return event if isinstance(event, dict) else None
        return None

    def _fields(self, before: str, after: str) -> Event:
        """The fields beside the list, as far as they can be read."""
        fields: dict[str, Any] = {}
        for text in (before.rstrip().rstrip(",") + "}", "{" + after.strip().lstrip(",")):
            fields |= self._repaired(text) or {}
        return fields

    def _line(self, position: int) -> int:
        return bisect_right(self._lines, position - 1) + 1


def _without_odd_numbers(text: str) -> str:
    return _NO_JSON_NUMBER.sub(lambda match: match[1] or "null", text)


def _with_values(text: str) -> str:
    return _NO_VALUE.sub(lambda match: match[1] or " null", text)


def _without_last_commas(text: str) -> str:
    return _LAST_COMMA.sub(lambda match: match[1] or "", text)


def _with_escapes(text: str) -> str:
    return _NO_ESCAPE.sub(lambda match: match[0] if match[1] else r"\\", text)


_REPAIRS: Final[tuple[Callable[[str], str], ...]] = (
    str,
    _with_escapes,
    _without_odd_numbers,
    _with_values,
    _without_last_commas,
)
"""One after the other, until the text is JSON."""
