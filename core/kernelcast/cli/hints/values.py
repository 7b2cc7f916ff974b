"""Kept and approved values as rows of an export, and the outcome of a value that was rolled out by a restart."""

import json
import math
import platform
from collections.abc import Mapping
from typing import Any, Final

from kernelcast.cli.hints.known import HintRecord, KnownHints, TimedOutcome
from kernelcast.cli.hints.sentences import moment
from kernelcast.tuning.experiment import Decision
from kernelcast.wire.errors import ConfigurationError, EventError
from kernelcast.wire.events import Hint, Outcome, OutcomeState, outcome_from, to_event
from kernelcast.wire.tuning.approvals import RESTART, ApprovalState

DECIDED: Final = (OutcomeState.KEPT, OutcomeState.ROLLED_BACK)
"""States after which an approved hint no longer waits for its roll-out."""
MAX_REASON_CHARACTERS: Final = 200
"""Of an outcome's reason; the verdict comes from standard input and may have any length."""
FIELDS: Final = (
    "hint_id", "time", "program", "rank", "hostname", "uuid", "device_model", "code_version", "tunable", "value",
    "previous", "measured_ratio", "interval_low", "interval_high", "gain_ratio", "pairs", "step_time_ratio",
    "device_time_ratio", "rules", "granularity", "approved_by",
)  # fmt: skip
"""Names of the fields of a row."""

_Place = tuple[tuple[str, str, str], str, str, str]
"""Process, program, tunable and value."""


def kept_rows(known: KnownHints) -> list[dict[str, Any]]:
    """Return the kept outcomes with their gains, one row for each process, the newest first; `FIELDS` are the names.

    A value that its process has taken back since is left out, so that the rows can be given to `KERNELCAST_SET`.
    """
    answers = [(record, answer) for record in known.newest_first() for answer in record.newest()]
    taken_back_ns: dict[_Place, int] = {}
    for _, answer in answers:
        outcome = answer.outcome
        if outcome.state is OutcomeState.ROLLED_BACK and outcome.previous != outcome.value:
            place = _place(answer, outcome.previous)
            taken_back_ns[place] = max(answer.time_ns, taken_back_ns.get(place, answer.time_ns))
    return [
        _kept_row(record, answer)
        for record, answer in sorted(answers, key=lambda pair: -pair[1].time_ns)
        if answer.outcome.state is OutcomeState.KEPT
        and taken_back_ns.get(_place(answer, answer.outcome.value), -1) < answer.time_ns
    ]


def _kept_row(record: HintRecord, answer: TimedOutcome) -> dict[str, Any]:
    outcome = answer.outcome
    low, high = outcome.measured_interval or (None, None)
    ratio = outcome.measured_ratio
    derived = {
        "time": moment(answer.time_ns),
        "interval_low": low,
        "interval_high": high,
        "gain_ratio": None if ratio is None else 1 - ratio,
        "rules": record.rules,
        "approved_by": _approver(record),
    }
    return {name: derived[name] if name in derived else getattr(outcome, name) for name in FIELDS}


def _approver(record: HintRecord) -> str:
    if record.approval is None or record.approval_state is not ApprovalState.APPROVED:
        return ""
    return record.approval.by or "a person"


def _place(answer: TimedOutcome, value: str) -> _Place:
    return answer.where, answer.outcome.program, answer.outcome.tunable, value


def approved_rows(known: KnownHints, now_ns: int) -> list[dict[str, Any]]:
    """Return the approved hints without a decision, with the names of `FIELDS`; figures are None."""
    return [
        dict.fromkeys(FIELDS)
        | {name: getattr(hint, name) for name in FIELDS if hasattr(hint, name)}
        | {"time": moment(record.time_ns), "previous": hint.requires, "rules": record.rules}
        for record, hint in _approved(known, now_ns)
    ]


def outcome_of(record: HintRecord, verdict: str) -> Outcome:
    """Return the outcome of a roll-out.

    Args:
        record: The hint.
        verdict: The output of `python -m kernelcast.tuning.runs`.

    Raises:
        ConfigurationError: The hint is for a value that programs change by themselves, it is not approved, or the
            verdict cannot be read.
    """
    hint = record.hint
    if hint is None or hint.granularity != RESTART:
        raise ConfigurationError(
            f"hint {record.hint_id} is not for a restart; programs report the outcomes of the other hints"
        )
    if record.approval is None or not record.approval.approves(hint):
        raise ConfigurationError(f"hint {hint.hint_id} is not approved; `kernelcast hints approve {hint.hint_id}`")
    found, decision = _parsed(verdict)
    low, high = (_number(one) for one in found.get("interval") or (None, None))
    ratio, runs = _number(found.get("ratio")), _number(found.get("runs")) or 0
    kept = decision is Decision.KEPT
    outcome = Outcome(
        hint.hint_id,
        hint.program,
        hint.tunable,
        OutcomeState.KEPT if kept else OutcomeState.ROLLED_BACK,
        reason=str(found.get("reason", ""))[:MAX_REASON_CHARACTERS],
        value=hint.value if kept else hint.requires,
        previous=hint.requires,
        measured_ratio=ratio,
        measured_interval=None if low is None or high is None else (low, high),
        pairs=int(runs) // 2,
        hostname=platform.node(),
        decision=decision.value,
        step_time_ratio=ratio,
        device_model=hint.device_model,
        code_version=hint.code_version,
        granularity=RESTART,
    )
    try:
        return outcome_from(to_event(outcome, source="/", time_ns=0))  # as every reader of it does
    except EventError as error:
        raise _unusable(verdict, error) from error


def _parsed(verdict: str) -> tuple[Mapping[str, Any], Decision]:
    try:
        found = json.loads(verdict)
        decision = Decision(found["decision"])
        if found.get("interval") is not None:
            _low, _high = found["interval"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _unusable(verdict, error) from error
    return found, decision


def _unusable(verdict: str, error: Exception) -> ConfigurationError:
    remedy = "pass what `python -m kernelcast.tuning.runs` prints"
    return ConfigurationError(f"the verdict is {verdict[:80]!r}: {error}; {remedy}")


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _approved(known: KnownHints, now_ns: int) -> list[tuple[HintRecord, Hint]]:
    """Return the hints that a person has approved, and that are neither decided nor expired, the newest first."""
    return [
        (record, record.hint)
        for record in known.newest_first()
        if record.hint is not None
        and record.approval is not None
        and record.approval.approves(record.hint)
        and record.hint.expires_at_ns > now_ns
        and not any(one.outcome.state in DECIDED for one in record.answers)
    ]
