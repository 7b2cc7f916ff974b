"""Messages that ranks exchange at a meeting, as JSON texts.

Each message has the rank's report, and the state that the sender would give all ranks. Only the first rank's state
counts: it decides on the reports of the meeting before.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any, Final

from kernelcast.wire.events import SEARCH_PREFIX

VERSION: Final = 1
# Separates the id of a search from the number of its experiment: `search-7f….2`.
PROOF: Final = "."
# Suffix of the id of the check of a kept configuration.
CHECK: Final = "-check"
# Launches of one report, and of one plan.
MAX_LAUNCHES: Final = 640

# Number, seconds and items of a launch.
Timed = tuple[int, float, float]


@dataclass(frozen=True, slots=True)
class Offer:
    """A hint that waits on a rank.

    Attributes:
        hint_id: Its id.
        tunable: Its tunable.
        value: The value.
        mode: `canary` or `apply`.
    """

    hint_id: str
    tunable: str
    value: str
    mode: str


@dataclass(frozen=True, slots=True)
class Report:
    """A rank's part of a meeting: its hints, its objections and its times.

    Attributes:
        offers: Hints that wait here.
        stop: The reason for which nothing may be tried here; empty if it may.
        busy: Whether a trial of this rank's own is open.
        trial: Id of the trial that the times belong to.
        launches: Step times since the last meeting.
        device: Device times that have become complete since.
        rests: The reason for which a search of all ranks must wait here, without a stop; empty if it may go on.
        bans: Spaces, with the indices of their allowed values that must not run here.
    """

    offers: tuple[Offer, ...] = ()
    stop: str = ""
    busy: bool = False
    trial: str = ""
    launches: tuple[Timed, ...] = ()
    device: tuple[Timed, ...] = ()
    rests: str = ""
    bans: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """An open trial on all ranks, with the plan of the launches until the next meeting.

    Attributes:
        trial: Its id: that of the hint, or of the search.
        tunable: The tunable.
        value: The value that is compared with `old`.
        old: The kept value, which runs outside of the plan.
        first: Number of the plan's first launch.
        plan: Values and how many launches in a row each of them runs.
    """

    trial: str
    tunable: str
    value: str
    old: str
    first: int = 0
    plan: tuple[tuple[str, int], ...] = ()

    @property
    def is_search(self) -> bool:
        """Whether a search of all ranks wants its values, and no hint."""
        return is_search(self.trial)

    @property
    def is_check(self) -> bool:
        """Whether a kept configuration is compared with the one that it has replaced."""
        return self.is_search and self.trial.partition(PROOF)[0].endswith(CHECK)

    @property
    def is_exploring(self) -> bool:
        """Whether it is the part of a search that tries many values; the trial of its best one has a number."""
        return self.is_search and PROOF not in self.trial


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a trial.

    Attributes:
        trial: Its id.
        tunable: The tunable.
        value: The value tried.
        decision: As of an experiment; `applied` for a hint that asked for no trial.
        reason: For people.
        ratio, interval: Of the measure that decided.
        step_time_ratio, device_time_ratio: Both measures.
        blocks: Blocks compared.
        candidate_steps: Launches with the value.
        outside: Whether an order or an error ended it, which says nothing about the value.
    """

    trial: str
    tunable: str
    value: str
    decision: str
    reason: str
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    step_time_ratio: float | None = None
    device_time_ratio: float | None = None
    blocks: int = 0
    candidate_steps: int = 0
    outside: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """The common state of all ranks, as the first one decides it.

    Attributes:
        kept: The kept values by tunable.
        wanted: Id of the hint that begins next: ranks begin nothing of their own.
        work: The open trial.
        ended: The last trials that ended, oldest first.
        pause: Boundaries to the next meeting.
        next_pause: Boundaries from that to the one after it, so that a rank that misses the next message still
            knows when to meet.
    """

    kept: Mapping[str, str] = field(default_factory=dict)
    wanted: str = ""
    work: Work | None = None
    ended: tuple[Ended, ...] = ()
    pause: int = 1
    next_pause: int = 1


@dataclass(frozen=True, slots=True)
class Message:
    """A rank's message.

    Attributes:
        sender: Random id of the rank, by which the first rank recognises its own message.
        report: The report.
        state: The state as the sender knows or decides it.
    """

    sender: str
    report: Report
    state: State


def is_search(trial: str) -> bool:
    """Whether the id of a trial is that of a search."""
    return trial.startswith(SEARCH_PREFIX)


def encode(message: Message) -> str:
    """Return the message as text."""
    return json.dumps({"v": VERSION, **asdict(message)}, separators=(",", ":"), allow_nan=False)


def decode(text: str) -> Message | None:
    """Return the message of a text; None if it has none that this version can use."""
    try:
        document = json.loads(text)
        if document["v"] != VERSION:
            return None
        return Message(str(document["sender"]), _report(document["report"]), _state(document["state"]))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def _report(values: Mapping[str, Any]) -> Report:
    return Report(
        tuple(Offer(**offer) for offer in values["offers"]),
        str(values["stop"]),
        bool(values["busy"]),
        str(values["trial"]),
        _timed(values["launches"]),
        _timed(values["device"]),
        str(values.get("rests", "")),
        tuple((str(name), tuple(map(int, places))) for name, places in values.get("bans", ())),
    )


def _timed(values: Any) -> tuple[Timed, ...]:
    found = ((int(number), float(seconds), float(items)) for number, seconds, items in values[:MAX_LAUNCHES])
    return tuple(one for one in found if isfinite(one[1]) and isfinite(one[2]))


def _state(values: Mapping[str, Any]) -> State:
    work = values["work"]
    return State(
        {str(name): str(value) for name, value in values["kept"].items()},
        str(values["wanted"]),
        Work(**{**work, "plan": tuple((str(value), int(count)) for value, count in work["plan"])}) if work else None,
        tuple(Ended(**{**one, "interval": _interval(one["interval"])}) for one in values["ended"]),
        max(1, int(values["pause"])),
        max(1, int(values["next_pause"])),
    )


def _interval(value: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    low, high = value
    return float(low), float(high)
