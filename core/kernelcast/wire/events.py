"""CloudEvents 1.0 (structured JSON) for hints, their outcomes, and alerts.

Source: cloudevents/spec, formats/json-format.md and bindings/kafka-protocol-binding.md (structured content mode).
"""

import json
import uuid
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, TypeVar

from kernelcast.wire.errors import EventError

SPEC_VERSION: Final = "1.0"
CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"
HINT_TYPE: Final = "dev.kernelcast.hint.v1"
OUTCOME_TYPE: Final = "dev.kernelcast.outcome.v1"
ALERT_TYPE: Final = "dev.kernelcast.alert.v1"
MAX_EVENT_BYTES: Final = 48 * 1024
"""A hint must fit into one probe frame."""

NANOSECONDS: Final = 1_000_000_000


class HintMode(StrEnum):
    """Limit of a program's action on a hint: only report it, try it and measure, or apply it without a test."""

    DRY_RUN = "dry_run"
    CANARY = "canary"
    APPLY = "apply"


class OutcomeState(StrEnum):
    """States of a hint in a program, in their possible order."""

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
        mode: How far the program may go.
        expected_ratio: New kernel time over old that is expected; below 1 is faster.
        expected_interval: Its interval.
        confidence: Between 0 and 1.
        evidence: Why.
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

    @property
    def key(self) -> str:
        """The record key: the newest hint for a tunable on a device model replaces the older ones."""
        return f"{self.program}|{self.tunable}|{self.device_model}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a hint in a program.

    Attributes:
        hint_id: Id of the hint.
        program: The program.
        rank: Its rank.
        tunable: The tunable.
        state: What happened.
        reason: Why, for people.
        value: The tunable's value after it.
        previous: Its value before.
        measured_ratio: Kernel time with the new value over that with the old; None where it was not measured.
        measured_interval: Its 95 % interval.
        pairs: How many interleaved pairs were measured.
        hostname: Where; the exporter fills it in.
        uuid: On which GPU; the exporter fills it in.
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


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert of an Alertmanager webhook notification, with the fields that all of its alerts share."""

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


_Data = TypeVar("_Data", Hint, Outcome, Alert)
_TYPES: Final[dict[str, type[Hint | Outcome | Alert]]] = {HINT_TYPE: Hint, OUTCOME_TYPE: Outcome, ALERT_TYPE: Alert}
_NAMES: Final = {kind: name for name, kind in _TYPES.items()}


def to_event(data: Hint | Outcome | Alert, *, source: str, time_ns: int, event_id: str = "") -> dict[str, Any]:
    """Return the CloudEvent that carries `data`, as a JSON object.

    Args:
        data: Its data.
        source: URI reference of its source, such as `/kernelcast/predictor/host`.
        time_ns: Its time, Unix nanoseconds.
        event_id: Unique per source; generated if empty.
    """
    return {
        "specversion": SPEC_VERSION,
        "id": event_id or str(uuid.uuid4()),
        "source": source,
        "type": _NAMES[type(data)],
        "subject": data.fingerprint if isinstance(data, Alert) else data.hint_id,
        "time": rfc3339(time_ns),
        "datacontenttype": "application/json",
        "data": asdict(data),
    }


def encode_event(event: dict[str, Any]) -> bytes:
    """The event as bytes for a record value.

    Raises:
        EventError: Longer than `MAX_EVENT_BYTES`.
    """
    body = json.dumps(event, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    if len(body) > MAX_EVENT_BYTES:
        raise EventError(f"event is {len(body)} bytes; the limit is {MAX_EVENT_BYTES}; shorten its evidence or labels")
    return body


def decode_event(body: bytes) -> dict[str, Any]:
    """A CloudEvent from a record value, its envelope checked.

    Raises:
        EventError: Not JSON, or not a CloudEvent of version 1.0.
    """
    if len(body) > MAX_EVENT_BYTES:
        raise EventError(f"event is {len(body)} bytes; the limit is {MAX_EVENT_BYTES}; it is refused")
    try:
        event = json.loads(body)
        # JSON can spell half a surrogate pair, which no record key or header can hold.
        json.dumps(event, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise EventError(f"event is not JSON: {error}; it is refused") from error
    return check_envelope(event)


def check_envelope(event: Any) -> dict[str, Any]:
    """The event, if it has what CloudEvents 1.0 requires.

    Raises:
        EventError: It has not.
    """
    if not isinstance(event, dict):
        raise EventError(f"event is a JSON {type(event).__name__}, not an object; it is refused")
    if event.get("specversion") != SPEC_VERSION:
        raise EventError(f"specversion is {event.get('specversion')!r}; it must be {SPEC_VERSION!r}; it is refused")
    for name in ("id", "source", "type"):
        if not isinstance(event.get(name), str) or not event[name]:
            raise EventError(f"event has {name} {event.get(name)!r}; a text is required; it is refused")
    return event


def hint_from(event: dict[str, Any]) -> Hint:
    """The hint an event carries. Raises EventError where it carries none."""
    return _data(event, Hint)


def outcome_from(event: dict[str, Any]) -> Outcome:
    """The outcome an event carries. Raises EventError where it carries none."""
    return _data(event, Outcome)


def alert_from(event: dict[str, Any]) -> Alert:
    """The alert an event carries. Raises EventError where it carries none."""
    return _data(event, Alert)


def rfc3339(time_ns: int) -> str:
    """A Unix time in nanoseconds as RFC 3339, UTC, with microseconds."""
    seconds, rest_ns = divmod(time_ns, NANOSECONDS)
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest_ns // 1000)
    return moment.isoformat().replace("+00:00", "Z")


def _data(event: dict[str, Any], kind: type[_Data]) -> _Data:
    check_envelope(event)
    if event["type"] != _NAMES[kind]:
        raise EventError(f"event type is {event['type']!r}; expected {_NAMES[kind]!r}; it is refused")
    values = event.get("data")
    if not isinstance(values, dict):
        raise EventError(f"event {event['id']} has no data object; it is refused")
    known = {item.name for item in fields(kind)}
    try:
        data = kind(**{name: _typed(name, value) for name, value in values.items() if name in known})
        _check(data)
    except (TypeError, ValueError) as error:
        raise EventError(f"event {event['id']} has unusable data: {error}; it is refused") from error
    return data


def _typed(name: str, value: Any) -> Any:
    if name == "mode":
        return HintMode(value)
    if name == "state":
        return OutcomeState(value)
    if name == "evidence":
        return tuple(Evidence(**item) for item in value)
    if name in ("expected_interval", "measured_interval") and value is not None:
        low, high = value
        return (float(low), float(high))
    return value


def _check(data: Hint | Outcome | Alert) -> None:
    for item in fields(data):
        value = getattr(data, item.name)
        if item.type in ("str", str) and not isinstance(value, str):
            raise TypeError(f"{item.name} is {value!r}, not a text")
        if item.type in ("int", int) and (not isinstance(value, int) or isinstance(value, bool)):
            raise TypeError(f"{item.name} is {value!r}, not an integer")
        if item.name in ("labels", "annotations") and not (
            isinstance(value, dict) and all(isinstance(text, str) for pair in value.items() for text in pair)
        ):
            raise TypeError(f"{item.name} is not an object of texts")
