"""File format of a recording of NVML: its answers by call, over time.

The file has one JSON object per line, compressed by gzip if its name ends in `.gz`. The first line is the header. Each
later line is one moment: `at_ns` since the beginning, `set` with the changed answers by owner and call, and `events`
since the moment before. Example of a moment: `{"at_ns":0,"set":{"0":{"nvmlDeviceGetPowerUsage":71000}}}`

An owner is `""` for the node, `0` for the GPU at index 0, `0/3` for the MIG device at index 3 of it. A call is its name
and its arguments, such as `nvmlDeviceGetClockInfo:1`. An answer is a number, a text, a list, a mapping of a struct's
members, or `{"error": 3}` with NVML's code.
"""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, Literal, TextIO, cast

from kernelcast.wire.errors import TraceError

FORMAT: Final = "kernelcast-nvml"
VERSION: Final = 1
NODE: Final = ""
ERROR: Final = "error"
_INVALID: Final = (
    OSError,
    EOFError,
    zlib.error,
    ValueError,
    OverflowError,
    RecursionError,
    KeyError,
    TypeError,
    AttributeError,
)
"""Errors of the readers of files, gzip, JSON and moments for a file that is no recording."""

Answers = dict[str, dict[str, Any]]
"""Answers by owner and call."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event that NVML reported.

    Attributes:
        owner: The GPU.
        type: NVML's event type.
        data: Of an XID its number.
        gpu_instance: MIG GPU instance, or 0xFFFFFFFF.
    """

    owner: str
    type: int
    data: int
    gpu_instance: int = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class RecordedChanges:
    """Changes at one moment.

    Attributes:
        at_ns: Time since the recording began.
        changed: Answers that differ from those of the moment before.
        events: Events since the moment before.
    """

    at_ns: int
    changed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Recording:
    """All moments, in order; the first is at 0 and has every answer.

    Attributes:
        moments: The moments.
        note: What a capture does not show, for people; empty where there is nothing to say.
    """

    moments: tuple[RecordedChanges, ...]
    note: str = ""

    @property
    def length_ns(self) -> int:
        """Length, above 0: the last moment lasts as long as the one before it, a second if that is not positive."""
        times = [moment.at_ns for moment in self.moments]
        last_ns = times[-1] - times[-2] if len(times) > 1 else 0
        return max(times) + (last_ns if last_ns > 0 else 1_000_000_000)


def read(path: Path) -> Recording:
    """Read a recording.

    Raises:
        TraceError: The file cannot be read, or is none.
    """
    return Recording(tuple(moments(path)))


def moments(path: Path) -> Iterator[RecordedChanges]:
    """Read a recording's moments one by one, so that a check holds one of them in memory.

    Raises:
        TraceError: The file cannot be read, or is none.
    """
    found = False
    try:
        with _open(path, "rt") as lines:
            for moment in _moments(lines):
                found = True
                yield moment
    except _INVALID as error:
        raise TraceError(
            f"{path} is not a recording of NVML: {error}; make one with `kernelcast replay record`"
        ) from None
    if not found:
        raise TraceError(f"{path} holds no moment; record for at least one interval")


def write(path: Path, moments: Iterable[RecordedChanges]) -> int:
    """Write a recording; returns how many moments it has. What fails before the first leaves the file as it is.

    Raises:
        TraceError: The file cannot be written.
    """
    written = 0
    following = iter(moments)
    try:
        existed = path.exists()
        path.open("ab").close()
        if not existed:
            path.resolve().unlink()  # of a link, the file that it names
        first = list(islice(following, 1))
        with _open(path, "wt") as lines:
            lines.write(json.dumps({"format": FORMAT, "version": VERSION}) + "\n")
            for moment in chain(first, following):
                lines.write(json.dumps(_line(moment), separators=(",", ":")) + "\n")
                written += 1
    except OSError as error:
        raise TraceError(f"{path} cannot be written: {error}") from None
    return written


def gpm_owner(owner: str, instance: int) -> str:
    """Return the owner of a GPU instance's GPM metrics."""
    return f"{owner}/gi{instance}"


def changes(before: Answers, now: Answers) -> dict[str, dict[str, Any]]:
    """The answers of `now` that `before` does not have."""
    found = {
        owner: {call: answer for call, answer in calls.items() if before.get(owner, {}).get(call, _NONE) != answer}
        for owner, calls in now.items()
    }
    return {owner: calls for owner, calls in found.items() if calls}


_NONE: Final = object()


def _open(path: Path, mode: Literal["rt", "wt"]) -> TextIO:
    if path.suffix == ".gz":
        return cast("TextIO", gzip.open(path, mode, encoding="utf-8"))
    return cast("TextIO", path.open(mode, encoding="utf-8"))


def _line(moment: RecordedChanges) -> dict[str, Any]:
    events = [[one.owner, one.type, one.data, one.gpu_instance] for one in moment.events]
    return {"at_ns": moment.at_ns, "set": moment.changed} | ({"events": events} if events else {})


def _moments(lines: Iterable[str]) -> Iterator[RecordedChanges]:
    parsed = map(json.loads, lines)
    head: dict[str, Any] = next(parsed, {})
    if (head["format"], head["version"]) != (FORMAT, VERSION):
        raise ValueError(f"format {head['format']}, version {head['version']}; {FORMAT}, {VERSION} is read")
    for one in parsed:
        changed = {owner: dict(calls) for owner, calls in one["set"].items()}
        yield RecordedChanges(int(one["at_ns"]), changed, tuple(Event(*event) for event in one.get("events", ())))
