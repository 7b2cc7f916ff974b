"""`kernelcast findings list|mark`: shows the predictor's findings, and records the answers of people to them.

Both read the topic of findings to its end; `mark` then writes one event to it. One thread, as in every command here.
"""

import json
import time
from collections.abc import Collection
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from kernelcast.cli.kafka import (
    TO_THE_END_AND_NO_LOG,
    KafkaOptions,
    application,
    login_name,
    one_of,
    show_table,
    write_event,
)
from kernelcast.runtime.command import command
from kernelcast.runtime.kafka.admin import Admin
from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.kafka.replay import ReplayConsumer, to_end
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.runtime.terminal import printable
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.cloudevents import rfc3339
from kernelcast.wire.errors import BrokerAccessError, BrokerError, ConfigurationError
from kernelcast.wire.events import to_event
from kernelcast.wire.findings import Finding, FindingState, Mark, Severity, Verdict, mark_key
from kernelcast.wire.known_findings import KnownFindings
from kernelcast.wire.topics import FINDINGS

findings = application("List the predictor's findings, and answer them.")
CLIENT: Final = "kernelcast-findings"
WITHOUT_KAFKA: Final = "a predictor without Kafka has its findings at http://HOST:19402/api/v1/findings"
STALE_NS: Final = 26 * 3600 * 1_000_000_000
"""A finding that lasts is written again every day; one that was not has no predictor any more."""
HEAD: Final = ("id", "severity", "state", "cause", "where", "explains", "value", "since", "answer")
SHOWN_LABELS: Final = ("Hostname", "gpu", "program", "rank", "kernel", "rack")


def read(reader: ReplayConsumer) -> KnownFindings:
    """Read the topic to its present end.

    Raises:
        BrokerError: Kafka does not answer, or has no such topic.
    """
    partitions = reader.partitions(FINDINGS.name)
    if not partitions:
        raise BrokerError(f"Kafka has no topic {FINDINGS.name}; create it with `kernelcast topics apply`")
    known = KnownFindings()
    for message in to_end(reader, partitions):
        if message.value() is not None:
            known.add(message.value())
    return known


@findings.command("list")
@command
def list_command(
    *,
    all_: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything about them, a JSON object a line.")] = False,
    options: KafkaOptions,
) -> None:
    """Show the findings that last, pages first, then the newest first."""
    known = _read(options.settings("findings"))
    chosen = [one for one in known.findings.values() if all_ or _lasts(one, time.time_ns())]
    chosen.sort(key=lambda one: (one.severity is not Severity.PAGE, one.held, -one.began_ns, one.finding_id))
    if as_json:
        for one in chosen:
            typer.echo(json.dumps(_as_json(one, known.marks.get(one.finding_id)), ensure_ascii=False))
    else:
        show_table(HEAD, [_row(one, known.marks.get(one.finding_id)) for one in chosen])
    if known.unusable:
        typer.echo(f"{known.unusable} messages on {FINDINGS.name} are neither findings nor marks", err=True)


@findings.command("mark")
@command
def mark_command(
    finding_id: Annotated[str, typer.Argument(metavar="ID", help="Of the finding; its first characters suffice.")],
    verdict: Annotated[Verdict, typer.Argument(help="The answer.")],
    *,
    by: Annotated[str | None, typer.Option("--by", help="Who answers; default: the login name.")] = None,
    note: Annotated[str, typer.Option("--note", help="A remark, for people.")] = "",
    options: KafkaOptions,
) -> None:
    """Answer a finding: it counts in the published precision; after a false alarm the series is reported later.

    `accepted` ends a finding of cause deploy: the new duration is the usual one.
    """
    kafka = options.settings("findings")
    known = _read(kafka).findings
    found = _one_of(known, finding_id)
    cause = known[found].cause
    if verdict is Verdict.ACCEPTED and cause is not Cause.DEPLOY:
        raise ConfigurationError(
            f"{found} has the cause {cause}; only slower kernels after a deploy can be accepted; mark it "
            f"{Verdict.REPAIRED} or {Verdict.FALSE_ALARM}"
        )
    _write(kafka, Mark(found, verdict, login_name() if by is None else by, note, time.time_ns()))
    typer.echo(printable(f"{found} is marked {verdict}"))


def _lasts(finding: Finding, now_ns: int) -> bool:
    """Whether a finding is not over; its predictor may have been removed without ending it."""
    return finding.state is not FindingState.OVER and now_ns - finding.updated_ns < STALE_NS


def _one_of(known: Collection[str], wanted: str) -> str:
    """The id that is the wanted text, or the only one that begins with it."""
    unknown = (
        f"{FINDINGS.name} has {len(known)} findings, none with the id {wanted!r}; `kernelcast findings list --all` "
        "shows them"
    )
    return one_of(known, wanted, unknown=unknown)


def _read(kafka: KafkaSettings) -> KnownFindings:
    try:
        Admin(kafka).can_administrate()  # names the reason and the remedy if Kafka cannot be reached
    except BrokerAccessError as error:
        raise BrokerAccessError(error.found, remedy=f"{error.remedy}; {WITHOUT_KAFKA}") from None
    reader = Consumer(kafka, group_id=CLIENT, overrides=TO_THE_END_AND_NO_LOG)
    try:
        return read(reader)
    finally:
        reader.close()


def _write(kafka: KafkaSettings, mark: Mark) -> None:
    event = to_event(mark, source=f"/{CLIENT}", time_ns=mark.time_ns)
    subject = f"the mark of {mark.finding_id}"
    write_event(kafka, client=CLIENT, topic=FINDINGS.name, key=mark_key(mark.finding_id), event=event, subject=subject)


def _as_json(finding: Finding, mark: Mark | None) -> dict[str, Any]:
    """All fields; labels as an object."""
    facts = [{**asdict(one), "labels": dict(one.labels)} for one in finding.evidence]
    answer = None if mark is None else asdict(mark)
    return {**asdict(finding), "labels": dict(finding.labels), "evidence": facts, "mark": answer}


def _row(finding: Finding, mark: Mark | None) -> tuple[str, ...]:
    labels = dict(finding.labels)
    where = " ".join(f"{name}={labels[name]}" for name in SHOWN_LABELS if labels.get(name))
    severity = f"{finding.severity}, held" if finding.held else str(finding.severity)
    against = "" if finding.limit is None else f" of {finding.limit:g}"
    value = "" if finding.value is None else f"{finding.value:g}{against}"
    since = rfc3339(finding.began_ns)[:16] + "Z"
    explains = f"{finding.series} series" if finding.series > 1 else finding.metric
    changed = next((fact.changes for fact in finding.evidence if fact.changes), "")
    explains += f" since {changed}" if changed else ""
    answer = "" if mark is None else f"{mark.verdict} {mark.by}".strip()
    state = ", ".join(map(str, filter(None, (finding.state, finding.end_reason))))
    return finding.finding_id, severity, state, str(finding.cause), where, explains, value, since, answer
