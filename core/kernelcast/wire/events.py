"""Data of hints, outcomes, alerts, findings and marks: frozen values, converted to CloudEvents and back.

::

    Hint      predictor -> exporter -> program
    Outcome   program -> exporter -> predictor
    Alert     Alertmanager -> bridge -> exporter
    Finding   predictor -> `kernelcast findings`
    Mark      `kernelcast findings` -> predictor

Readers ignore fields that they do not know, so that a newer writer can add some.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from math import isfinite
from typing import Any, Final, TypeVar

from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.cloudevents import data_of, envelope, joined_key
from kernelcast.wire.errors import EventError
from kernelcast.wire.findings import (
    EndReason,
    Finding,
    FindingEvidence,
    FindingState,
    Mark,
    Scope,
    Severity,
    Verdict,
)

HINT_TYPE: Final = "dev.kernelcast.hint.v1"
OUTCOME_TYPE: Final = "dev.kernelcast.outcome.v1"
ALERT_TYPE: Final = "dev.kernelcast.alert.v1"
FINDING_TYPE: Final = "dev.kernelcast.finding.v1"
MARK_TYPE: Final = "dev.kernelcast.mark.v1"
WITHDRAWAL_TYPE: Final = "dev.kernelcast.hint.withdrawn.v1"
"""Type of an event that withdraws a hint; only the exporter sends it, to a program. Its subject is the hint's record
key; it has no data."""
SEARCH_PREFIX: Final = "search-"
"""Beginning of the ids of outcomes that belong to no hint: the program searched a space by itself."""


class HintMode(StrEnum):
    """Limit of a program's action on a hint: only report it, try it and measure, or apply it without a test."""

    DRY_RUN = "dry_run"
    CANARY = "canary"
    APPLY = "apply"


class OutcomeState(StrEnum):
    """States of a hint in a program, in their possible order.

    A hint is first received. It then ends as rejected, expired or superseded (by a newer one for its tunable), or goes
    on: to `dry_run` (reported, not applied), or to applied, after which its trial ends in kept or rolled back.
    """

    RECEIVED = "received"
    REJECTED = "rejected"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    DRY_RUN = "dry_run"
    APPLIED = "applied"
    KEPT = "kept"
    ROLLED_BACK = "rolled_back"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One reason for a hint: which rule, the field it read, its value, and where the rule comes from."""

    rule: str
    field: str
    value: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Hint:
    """One proposed change of one tunable.

    Attributes:
        hint_id: Unique; outcomes carry it as their key.
        program: The program it is for.
        tunable: The tunable it is for.
        value: The value proposed, as text.
        requires: The value the tunable must still have, as text; empty asks for nothing.
        device_model: The GPU model it was derived for; a program on another refuses it.
        code_version: The program's version it was derived for; empty fits any.
        rank: `*` for all ranks.
        kernel: The label of the kernel it should make faster.
        expires_at_ns: Unix nanoseconds; after that it is refused.
        mode: Limit of the program's action.
        expected_ratio: Expected kernel time with the new value over that with the old; below 1 is faster.
        expected_interval: Its 95 % interval.
        confidence: Between 0 and 1.
        evidence: Facts from which the rule concluded it.
        approval: `required` where a person has to approve it first (`wire.tuning.approvals`); empty otherwise.
        approved_by: The person who approved it; the exporter fills it in when it delivers the hint.
        granularity: When the tunable may change: `call`, `step`, `epoch` or `restart`; empty where it is not known.
    """

    hint_id: str
    program: str
    tunable: str
    value: str
    expires_at_ns: int
    requires: str = ""
    device_model: str = ""
    code_version: str = ""
    rank: str = "*"
    kernel: str = ""
    mode: HintMode = HintMode.CANARY
    expected_ratio: float | None = None
    expected_interval: tuple[float, float] | None = None
    confidence: float = 0.5
    evidence: tuple[Evidence, ...] = ()
    approval: str = ""
    approved_by: str = ""
    granularity: str = ""

    @property
    def key(self) -> str:
        """The record key: the newest hint for a tunable on a device model replaces the older ones."""
        return joined_key(self.program, self.tunable, self.device_model)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a hint in a program.

    Attributes:
        hint_id: Id of the hint.
        program: The program.
        rank: Its rank.
        tunable: The tunable.
        state: The state that the hint has reached.
        reason: The reason, for people.
        value: The tunable's value after it.
        previous: Its value before.
        measured_ratio: Kernel time with the new value over that with the old; None where it was not measured.
        measured_interval: Its 95 % interval.
        pairs: Number of interleaved pairs that were measured.
        hostname: The node; the exporter fills it in.
        uuid: UUID of the GPU; the exporter fills it in.
        decision: The experiment's decision: `kept`, `rolled_back`, `inconclusive` or `failed`; empty before it. Its
            state is `rolled_back` for all but the first, so that a reader of states alone closes the hint.
        step_time_ratio: Time of a step per item with the new value over that with the old; None if not measured.
        device_time_ratio: The same of the device time of a step.
        candidate_steps: Steps that ran with the new value during the trial.
        candidate: The value that was tried, where the program searched by itself; its id begins with `SEARCH_PREFIX`.
        device_model: Model of the GPU; the exporter fills it in.
        code_version: Version of the program; the exporter fills it in.
        granularity: When the value may change: `call`, `step`, `epoch` or `restart`; of a tunable the exporter fills it
            in. Empty where it is not known.
    """

    hint_id: str
    program: str
    tunable: str
    state: OutcomeState
    rank: str = ""
    reason: str = ""
    value: str = ""
    previous: str = ""
    measured_ratio: float | None = None
    measured_interval: tuple[float, float] | None = None
    pairs: int = 0
    hostname: str = ""
    uuid: str = ""
    decision: str = ""
    step_time_ratio: float | None = None
    device_time_ratio: float | None = None
    candidate_steps: int = 0
    candidate: str = ""
    device_model: str = ""
    code_version: str = ""
    granularity: str = ""

    @property
    def is_search(self) -> bool:
        """Whether it is of a search by the program itself, and of no hint."""
        return self.hint_id.startswith(SEARCH_PREFIX)


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert of an Alertmanager webhook notification, with the notification's fields (`receiver` to the end).

    Names and texts are Alertmanager's; times are RFC 3339.
    """

    fingerprint: str
    status: str
    starts_at: str
    ends_at: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    generator_url: str = ""
    receiver: str = ""
    group_key: str = ""
    external_url: str = ""


EventData = Hint | Outcome | Alert | Finding | Mark
_Data = TypeVar("_Data", Hint, Outcome, Alert, Finding, Mark)
_TYPES: Final[dict[str, type[EventData]]] = {
    HINT_TYPE: Hint,
    OUTCOME_TYPE: Outcome,
    ALERT_TYPE: Alert,
    FINDING_TYPE: Finding,
    MARK_TYPE: Mark,
}
_NAMES: Final = {kind: name for name, kind in _TYPES.items()}


def to_event(data: EventData, *, source: str, time_ns: int, event_id: str = "") -> dict[str, Any]:
    """Return the CloudEvent that carries `data`, as a JSON object.

    Args:
        data: Its data.
        source: URI reference of its source, such as `/kernelcast/predictor/host`.
        time_ns: Its time, Unix nanoseconds.
        event_id: Unique per source; generated if empty.
    """
    return envelope(
        asdict(data),
        kind=_NAMES[type(data)],
        subject=_subject(data),
        source=source,
        time_ns=time_ns,
        event_id=event_id,
    )


def withdrawal(key: str, *, source: str, time_ns: int) -> dict[str, Any]:
    """Return the CloudEvent that withdraws the hint with a record key."""
    return envelope(None, kind=WITHDRAWAL_TYPE, subject=key, source=source, time_ns=time_ns)


def withdrawn_key(event: dict[str, Any]) -> str | None:
    """Return the record key of the hint that an event withdraws; None for another event."""
    key = event.get("subject")
    return key if event.get("type") == WITHDRAWAL_TYPE and isinstance(key, str) else None


def hint_from(event: dict[str, Any]) -> Hint:
    """The hint an event carries. Raises EventError where it carries none."""
    return _data(event, Hint)


def outcome_from(event: dict[str, Any]) -> Outcome:
    """The outcome an event carries. Raises EventError where it carries none."""
    return _data(event, Outcome)


def alert_from(event: dict[str, Any]) -> Alert:
    """The alert an event carries. Raises EventError where it carries none."""
    return _data(event, Alert)


def finding_from(event: dict[str, Any]) -> Finding:
    """The finding an event carries. Raises EventError where it carries none."""
    return _data(event, Finding)


def mark_from(event: dict[str, Any]) -> Mark:
    """The mark an event carries. Raises EventError where it carries none."""
    return _data(event, Mark)


def _data(event: dict[str, Any], kind: type[_Data]) -> _Data:
    values = data_of(event, _NAMES[kind])
    known = {item.name for item in fields(kind)}
    try:
        data = kind(
            **{name: _READERS[kind].get(name, _unchanged)(value) for name, value in values.items() if name in known}
        )
        _check_types(data)
    except (AttributeError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise EventError(f"event {event['id']} has unusable data: {error}; it is refused") from error
    return data


def _subject(data: EventData) -> str:
    if isinstance(data, Alert):
        return data.fingerprint
    return data.finding_id if isinstance(data, Finding | Mark) else data.hint_id


def _unchanged(value: Any) -> Any:
    return value


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    number = float(value)
    if not isfinite(number):
        raise ValueError(f"{number} is not finite")
    return number


def _number(value: Any) -> float | None:
    return None if value is None else _finite(value)


def _interval(value: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    low, high = value
    return _finite(low), _finite(high)


def _measured(value: Any) -> float:
    ratio = _finite(value)
    if ratio < 0:
        raise ValueError(f"{ratio} is below 0, but a ratio of times")
    return ratio


def _measured_ratio(value: Any) -> float | None:
    return None if value is None else _measured(value)


def _measured_interval(value: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    low, high = value
    return _measured(low), _measured(high)


def _count(value: Any) -> Any:
    if isinstance(value, int) and value < 0:
        raise ValueError(f"{value} is below 0, but a count")
    return value


def _quantiles(value: Any) -> tuple[float | None, float | None, float | None] | None:
    if value is None:
        return None
    early, median, late = value
    return _number(early), _number(median), _number(late)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def _known(kind: type[Evidence | FindingEvidence], value: Any) -> dict[str, Any]:
    known = {item.name for item in fields(kind)}
    return {name: one for name, one in value.items() if name in known}


def _hint_evidence(value: Any) -> Evidence:
    fact = Evidence(**_known(Evidence, value))
    _check_types(fact)
    return fact


def _label_pairs(value: Any) -> tuple[tuple[str, str], ...]:
    pairs = tuple((name, text) for name, text in value)
    if not all(isinstance(text, str) for pair in pairs for text in pair):
        raise TypeError(f"labels are {value!r}, not pairs of texts")
    return pairs


def _finding_evidence(value: Any) -> FindingEvidence:
    given = _known(FindingEvidence, value)
    given["labels"] = _label_pairs(given.get("labels", ()))
    for name in ("value", "reference"):
        given[name] = _number(given.get(name))
    fact = FindingEvidence(**given)
    _check_types(fact)
    return fact


_READERS: Final[Mapping[type[EventData], Mapping[str, Callable[[Any], Any]]]] = {
    Hint: {
        "mode": HintMode,
        "evidence": lambda value: tuple(map(_hint_evidence, value)),
        "expected_ratio": _number,
        "expected_interval": _interval,
        "confidence": _finite,
    },
    Outcome: {
        "state": OutcomeState,
        "measured_ratio": _measured_ratio,
        "measured_interval": _measured_interval,
        "step_time_ratio": _measured_ratio,
        "device_time_ratio": _measured_ratio,
        "pairs": _count,
        "candidate_steps": _count,
    },
    Alert: {},
    Finding: {
        "cause": Cause,
        "state": FindingState,
        "severity": Severity,
        "scope": Scope,
        "labels": _label_pairs,
        "value": _number,
        "limit": _number,
        "probability": _number,
        "seconds_to_limit": _quantiles,
        "held": _flag,
        "evidence": lambda value: tuple(map(_finding_evidence, value)),
        "end_reason": lambda value: None if value is None else EndReason(value),
    },
    Mark: {"verdict": Verdict},
}
"""Functions that read the fields that JSON has no type for, and numbers: JSON has NaN, and integers of any length."""


def _check_types(data: EventData | Evidence | FindingEvidence) -> None:
    """Raise where a field has another type than it declares, or an integer has over 64 bits: JSON can hold anything."""
    for item in fields(data):
        value = getattr(data, item.name)
        if item.type in ("str", str) and not isinstance(value, str):
            raise TypeError(f"{item.name} is {value!r}, not a text")
        if item.type in ("int", int) and (not isinstance(value, int) or isinstance(value, bool)):
            raise TypeError(f"{item.name} is {value!r}, not an integer")
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise ValueError(f"{item.name} is {value}, beyond 64 bits")
        if (
            isinstance(data, Alert)
            and item.name in ("labels", "annotations")
            and not (isinstance(value, dict) and all(isinstance(text, str) for pair in value.items() for text in pair))
        ):
            raise TypeError(f"{item.name} is not an object of texts")
