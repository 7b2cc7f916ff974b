"""Hints, outcomes, orders and approvals as sentences, for `list`, `watch` and `explain`. Pure functions."""

from collections.abc import Iterator

from kernelcast.cli.hints.known import Event, HintRecord, TimedOutcome
from kernelcast.wire.cloudevents import rfc3339
from kernelcast.wire.events import SEARCH_PREFIX, Hint, HintMode, Outcome, OutcomeState
from kernelcast.wire.tuning.approvals import REQUIRED, RESTART, Approval, ApprovalState, approved_mode
from kernelcast.wire.tuning.orders import ANY, StopOrder

MODES = {
    HintMode.DRY_RUN: "It is only reported; no program changes the value.",
    HintMode.CANARY: "Programs try the value against the old one, and keep it only if it is faster.",
    HintMode.APPLY: "Programs apply the value without a trial.",
}


def moment(time_ns: int) -> str:
    """Return a time to the second, UTC."""
    return rfc3339(time_ns)[:19] + "Z"


def ratio_text(ratio: float | None, interval: tuple[float, float] | None) -> str:
    """Return a ratio with its interval; empty if there is none."""
    if ratio is None:
        return ""
    return f"{ratio:.3g}" + (f" [{interval[0]:.3g}, {interval[1]:.3g}]" if interval else "")


def measured_text(record: HintRecord) -> str:
    """Return the measured ratio and interval of one process, or the range of several."""
    found = record.measured()
    if len(found) == 1:
        return ratio_text(found[0].measured_ratio, found[0].measured_interval)
    ratios = [one.measured_ratio for one in found if one.measured_ratio is not None]
    return f"{min(ratios):.3g} to {max(ratios):.3g} ({len(ratios)} processes)" if ratios else ""


def states_text(record: HintRecord) -> str:
    """Return the answer of a person, if one is needed, and the states with the number of processes in each."""
    states = [f"{count} {state}" for state, count in sorted(record.states().items())]
    return ", ".join([approval_text(record)] * (record.approval_state is not None) + states)


def approval_text(record: HintRecord) -> str:
    """Return whether a hint waits for a person, or the answer of the person; empty if it needs no answer."""
    return record.approval.sentence if record.approval else str(record.approval_state or "")


def line(data: Event, time_ns: int) -> str:
    """Return one line about an event, for `watch`."""
    return f"{moment(time_ns)} {_event(data)}"


def explanation(record: HintRecord) -> Iterator[str]:
    """Yield sentences about a hint: its reasons, its expectation, and what each process did and measured."""
    hint = record.hint
    if hint is None and record.hint_id.startswith(SEARCH_PREFIX):
        yield f"{record.program} searches the space {record.tunable} by itself; no hint asked for it."
    elif hint is None:
        yield (
            f"Hint {record.hint_id} for {record.tunable} of {record.program} is no longer on Kafka, "
            "because a newer hint has replaced it; its outcomes are."
        )
    else:
        yield from _proposal(record, hint)
    yield from _approval(record)
    answers = record.newest()
    if not answers and record.approval_state is not ApprovalState.PROPOSED:
        yield "No program has answered it."
    for one in answers:
        yield _answer(one)


def search_text(approval: Approval) -> str:
    """Return an answer about the search of a space as a sentence without its full stop."""
    bound = f"at most {approval.most} candidates until {moment(approval.expires_at_ns)}, "
    version = f" with code version {approval.code_version}" if approval.code_version else ""
    model = f" on {approval.device_model}" if approval.device_model else ""
    shown = bound if approval.state is ApprovalState.APPROVED else ""
    return f"search of {approval.tunable} by {approval.program}{version}{model}: {shown}{approval.sentence}"


def order_text(order: StopOrder) -> str:
    """Return a stop order as a sentence without its full stop."""
    programs = "all programs" if order.program == ANY else f"program {order.program}"
    nodes = "all nodes" if order.node == ANY else f"node {order.node}"
    return f"trials of {programs} on {nodes} are {order.sentence if order.in_force else 'allowed again'}"


def _approval(record: HintRecord) -> Iterator[str]:
    if record.approval is not None:
        yield f"{moment(record.approval.time_ns)} {record.approval.sentence}."
    elif record.approval_state is ApprovalState.PROPOSED:
        restart = record.hint is not None and record.hint.granularity == RESTART
        why = "needs a restart, so it is not rolled out" if restart else "changes results, so no program gets it"
        yield f"It {why} before a person approves it: `kernelcast hints approve {record.hint_id}`, or `reject`."


def _event(data: Event) -> str:
    if isinstance(data, StopOrder):
        return f"order: {order_text(data)}"
    if isinstance(data, Approval):
        if data.is_search:
            return search_text(data)
        return f"answer {data.hint_id}: {data.program} {data.tunable} = {data.value} {data.sentence}"
    if isinstance(data, Hint):
        rules = ", ".join(dict.fromkeys(one.rule for one in data.evidence))
        expected = ratio_text(data.expected_ratio, data.expected_interval)
        return (
            f"hint {data.hint_id}: {data.program} {data.tunable} = {data.value}"
            + (f", expected ratio {expected}" if expected else "")
            + (f", by {rules}" if rules else "")
            + (", waits for approval" if data.approval == REQUIRED else "")
        )
    return f"outcome {data.hint_id}: {_process(data)} {data.tunable}: {_result(data)}"


def _proposal(record: HintRecord, hint: Hint) -> Iterator[str]:
    model = f" on {hint.device_model}" if hint.device_model else ""
    version = f", code version {hint.code_version}" if hint.code_version else ""
    ranks = "all ranks" if hint.rank == ANY else f"rank {hint.rank}"
    before = f" in place of {hint.requires}" if hint.requires else ""
    yield (
        f"Hint {hint.hint_id} of {moment(record.issued_ns)} proposes {hint.tunable} = {hint.value}{before} "
        f"for {ranks} of {hint.program}{model}{version}."
    )
    mode = hint.mode if record.approval_state is None else approved_mode(hint)
    yield f"{MODES[mode]} It expires at {moment(hint.expires_at_ns)}."
    for one in hint.evidence:
        source = f" (source: {one.source})" if one.source else ""
        yield f"Reason: rule {one.rule} found {one.field} = {one.value}{source}."
    expected = ratio_text(hint.expected_ratio, hint.expected_interval)
    kernel = f" of kernel {hint.kernel}" if hint.kernel else ""
    yield f"Expected: new time{kernel} over the old {expected}." if expected else "Expected: unknown."


def _answer(answer: TimedOutcome) -> str:
    return f"{moment(answer.time_ns)} {_process(answer.outcome)}: {_result(answer.outcome)}."


def _process(outcome: Outcome) -> str:
    rank = f" rank {outcome.rank}" if outcome.rank else ""
    return f"{outcome.program}{rank}" + (f" on {outcome.hostname}" if outcome.hostname else "")


def _result(outcome: Outcome) -> str:
    parts = [str(outcome.decision or outcome.state)]
    if outcome.value and outcome.state not in (OutcomeState.RECEIVED, OutcomeState.REJECTED):
        changed = f" (before: {outcome.previous})" if outcome.previous not in ("", outcome.value) else ""
        parts.append(f"value {outcome.value}{changed}")
    if outcome.candidate not in ("", outcome.value):
        parts.append(f"tried {outcome.candidate}")
    if outcome.measured_ratio is not None:
        measured = ratio_text(outcome.measured_ratio, outcome.measured_interval)
        parts.append(f"measured ratio {measured} in {outcome.pairs} pairs")
    if outcome.step_time_ratio is not None:
        parts.append(f"step time ratio {outcome.step_time_ratio:.3g}")
    if outcome.device_time_ratio is not None:
        parts.append(f"device time ratio {outcome.device_time_ratio:.3g}")
    return ", ".join(parts) + (f": {outcome.reason}" if outcome.reason else "")
