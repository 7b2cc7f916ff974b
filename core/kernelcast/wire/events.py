"""Data of hints, outcomes, alerts, findings and marks: frozen values, converted to CloudEvents and back.

::

    Hint      predictor -> exporter -> program
    Outcome   program -> exporter -> predictor
    Alert     Alertmanager -> bridge -> exporter
    Finding   predictor -> `kernelcast findings`
    Mark      `kernelcast findings` -> predictor

Readers ignore fields that they do not know, so that a newer writer can add some.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from kernelcast.wire.cloudevents import envelope, joined_key
from kernelcast.wire.event_data import Count, Ratio, event_data, to_data
from kernelcast.wire.findings import Finding, Mark

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
    measured_ratio: Ratio | None = None
    measured_interval: tuple[Ratio, Ratio] | None = None
    pairs: Count = 0
    hostname: str = ""
    uuid: str = ""
    decision: str = ""
    step_time_ratio: Ratio | None = None
    device_time_ratio: Ratio | None = None
    candidate_steps: Count = 0
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

    Names and texts are Alertmanager's; times are RFC 3339. `ends_at` is empty while the alert fires.
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
        to_data(data),
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
    return event_data(event, Hint, HINT_TYPE)


def outcome_from(event: dict[str, Any]) -> Outcome:
    """The outcome an event carries. Raises EventError where it carries none."""
    return event_data(event, Outcome, OUTCOME_TYPE)


def alert_from(event: dict[str, Any]) -> Alert:
    """The alert an event carries. Raises EventError where it carries none."""
    return event_data(event, Alert, ALERT_TYPE)


def finding_from(event: dict[str, Any]) -> Finding:
    """The finding an event carries. Raises EventError where it carries none."""
    return event_data(event, Finding, FINDING_TYPE)


def mark_from(event: dict[str, Any]) -> Mark:
    """The mark an event carries. Raises EventError where it carries none."""
    return event_data(event, Mark, MARK_TYPE)


def _subject(data: EventData) -> str:
    if isinstance(data, Alert):
        return data.fingerprint
    return data.finding_id if isinstance(data, Finding | Mark) else data.hint_id
