"""The site's policy for trials: what programs may do, and when.

The predictor writes it from its settings to `kernelcast.policy`; exporters read it.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from kernelcast.wire.cloudevents import MAX_EVENT_BYTES, NANOSECONDS, envelope
from kernelcast.wire.errors import EventError
from kernelcast.wire.event_data import event_data, to_data
from kernelcast.wire.identity import PROGRAM_PATTERN
from kernelcast.wire.tuning.orders import ANY

POLICY_TYPE: Final = "dev.kernelcast.policy.v1"
POLICY_KEY: Final = "policy"
MAX_PROGRAMS: Final = 1024
MAX_WINDOWS: Final = 64
_MAX_BYTES: Final = MAX_EVENT_BYTES - 1024
"""Of modes and quiet hours as JSON; the rest of the event is shorter than the difference."""
_WINDOW: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_MINUTES_OF_A_DAY: Final = 24 * 60


class Mode(StrEnum):
    """Rights of a program: no trials, only those that a person approves, or all that are due."""

    OFF = "off"
    PROPOSE = "propose"
    TUNE = "tune"


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy.

    Attributes:
        modes: Mode by program; `*` is for the programs that are not named, without it `tune`.
        quiet_hours: Times of day, UTC, in which nothing is tried, such as `22:00-06:00`.
        time_ns: Time of its writing, Unix nanoseconds.
    """

    modes: Mapping[str, Mode] = field(default_factory=dict)
    quiet_hours: tuple[str, ...] = ()
    time_ns: int = 0

    def mode(self, program: str) -> Mode:
        """Return the mode of a program."""
        return self.modes.get(program, self.modes.get(ANY, Mode.TUNE))

    def quiet(self, now_ns: int) -> str:
        """Return the window of quiet hours that a time is in; empty if it is in none."""
        minute = now_ns // (60 * NANOSECONDS) % _MINUTES_OF_A_DAY
        return next((window for window in self.quiet_hours if _contains(window, minute)), "")


def check_policy(modes: Mapping[str, str], quiet_hours: Iterable[str]) -> None:
    """Check a policy that a person wrote.

    Raises:
        ValueError: A program, mode or window is unusable, or there are too many.
    """
    windows = tuple(quiet_hours)
    _check(modes, windows)
    size = len(json.dumps([dict(modes), windows], separators=(",", ":"), ensure_ascii=False).encode(errors="replace"))
    if size > _MAX_BYTES:
        raise ValueError(f"the policy is {size} bytes; the limit is {_MAX_BYTES}; use `{ANY}`, or join windows")


def _check(modes: Mapping[str, str], windows: Sequence[str]) -> None:
    for program in modes:
        if not PROGRAM_PATTERN.fullmatch(program):
            raise ValueError(f"{program!r} is no program; a name has 1 to 128 printable characters, `{ANY}` is all")
    for window in windows:
        if not _WINDOW.fullmatch(window):
            raise ValueError(f"quiet hours are {window!r}; write HH:MM-HH:MM in UTC, such as 22:00-06:00")
    for count, limit, word in ((len(modes), MAX_PROGRAMS, "programs"), (len(windows), MAX_WINDOWS, "quiet hours")):
        if count > limit:
            raise ValueError(f"the policy has {count} {word}; the limit is {limit}; use `{ANY}`, or join windows")


def policy_event(policy: Policy, *, source: str) -> dict[str, Any]:
    """Return the CloudEvent that carries a policy."""
    return envelope(to_data(policy), kind=POLICY_TYPE, subject=POLICY_KEY, source=source, time_ns=policy.time_ns)


def policy_from(event: dict[str, Any]) -> Policy:
    """Return the policy that an event carries.

    Raises:
        EventError: It carries none.
    """
    policy = event_data(event, Policy, POLICY_TYPE)
    try:
        _check(policy.modes, policy.quiet_hours)
    except ValueError as error:
        raise EventError(f"event {event['id']} has unusable data: {error}; it is refused") from error
    return policy


def _contains(window: str, minute: int) -> bool:
    """Whether a minute of the day lies in a window; `22:00-06:00` spans midnight."""
    found = _WINDOW.fullmatch(window)
    if found is None:
        return False
    begin_hour, begin_minute, end_hour, end_minute = map(int, found.groups())
    begin, end = 60 * begin_hour + begin_minute, 60 * end_hour + end_minute
    # From a time to the same time is the whole day.
    return begin <= minute < end if begin < end else minute >= begin or minute < end
