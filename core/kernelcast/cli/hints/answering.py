"""Writes a person's answer to a hint that changes results, or about a search; `command` calls it."""

import time

import typer

from kernelcast.cli.hints.known import HintRecord, KnownHints
from kernelcast.cli.hints.reading import CLIENT, read_known, require
from kernelcast.cli.hints.sentences import moment, search_text
from kernelcast.cli.kafka import login_name, one_of, write_event
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.runtime.terminal import printable
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.events import OutcomeState
from kernelcast.wire.topics import HINTS, ORDERS, OUTCOMES
from kernelcast.wire.tuning.approvals import Approval, ApprovalState, answer_to, approval_event
from kernelcast.wire.tuning.orders import MAX_REASON_CHARACTERS


def answer(kafka: KafkaSettings, hint_id: str, state: ApprovalState, *, reason: str, by: str | None) -> None:
    """Write the answer to a hint, and print it.

    Raises:
        ConfigurationError: There is no such hint, it has expired, or the reason is too long.
        BrokerError: Kafka does not answer, or has no topic of orders.
    """
    check_reason(reason)
    require(kafka, ORDERS)
    record = record_of(read_known(kafka, HINTS, OUTCOMES, ORDERS), hint_id)
    written = answer_of(record, state, reason=reason, by=login_name() if by is None else by, now_ns=time.time_ns())
    event = approval_event(written, source=f"/{CLIENT}")
    write_event(kafka, client=CLIENT, topic=ORDERS.name, key=written.key, event=event, subject="the answer")
    typer.echo(printable(f"{written.program} {written.tunable} = {written.value}: {written.sentence}"))
    kept = sum(one.outcome.state is OutcomeState.KEPT for one in record.newest())
    if state is ApprovalState.WITHDRAWN and kept:
        typer.echo(f"{kept} processes have kept the value already; another value needs a hint or a restart", err=True)


def answer_of(record: HintRecord, state: ApprovalState, *, reason: str, by: str, now_ns: int) -> Approval:
    """Return the answer to a hint.

    Raises:
        ConfigurationError: The hint is no longer on Kafka, has expired, or is rejected although it needs no approval.
    """
    hint = record.hint
    if hint is None:
        raise ConfigurationError(f"hint {record.hint_id} was replaced by a newer one; `kernelcast hints list` shows it")
    if record.approval_state is None and state is ApprovalState.WITHDRAWN:
        raise ConfigurationError(
            f"hint {hint.hint_id} needs no approval; `kernelcast hints stop --program {hint.program}` ends its trial"
        )
    if hint.expires_at_ns <= now_ns:
        raise ConfigurationError(
            f"hint {hint.hint_id} expired at {moment(hint.expires_at_ns)}; answer the next one of the predictor"
        )
    return answer_to(hint, state, by=by, reason=reason, time_ns=now_ns)


def answer_search(kafka: KafkaSettings, answered: Approval) -> None:
    """Write the answer about the search of a space, and print it.

    Raises:
        ConfigurationError: The reason is too long.
        BrokerError: Kafka does not answer, or has no topic of orders.
    """
    check_reason(answered.reason)
    require(kafka, ORDERS)
    event = approval_event(answered, source=f"/{CLIENT}")
    write_event(kafka, client=CLIENT, topic=ORDERS.name, key=answered.key, event=event, subject="the answer")
    typer.echo(search_text(answered))


def record_of(known: KnownHints, hint_id: str) -> HintRecord:
    """Return the hint whose id is, or begins with, the given text.

    Raises:
        ConfigurationError: There is none, or there are several.
    """
    unknown = (
        f"{HINTS.name} and {OUTCOMES.name} have {len(known.records)} hints, none with the id {hint_id!r}; "
        "`kernelcast hints list --all` shows them"
    )
    return known.records[one_of(known.records, hint_id, unknown=unknown)]


def check_reason(reason: str) -> None:
    """Check the length of a reason.

    Raises:
        ConfigurationError: It is too long.
    """
    if len(reason) > MAX_REASON_CHARACTERS:
        raise ConfigurationError(
            f"--reason has {len(reason)} characters; the limit is {MAX_REASON_CHARACTERS}; shorten it"
        )
