"""`kernelcast hints list|watch|explain|export|report|stop|resume|approve[-search]|reject[-search]`.

Each command reads the topics it needs to their end (`reading`), and prints (`sentences`, `values`) or writes one event.
"""

import csv
import json
import sys
import time
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Final

import typer

from kernelcast.cli.hints.answering import answer, answer_search, check_reason, record_of
from kernelcast.cli.hints.known import HintRecord
from kernelcast.cli.hints.reading import CLIENT, follow, open_reader, read_known, require
from kernelcast.cli.hints.sentences import (
    explanation,
    measured_text,
    moment,
    order_text,
    ratio_text,
    search_text,
    states_text,
)
from kernelcast.cli.hints.values import FIELDS, approved_rows, kept_rows, outcome_of
from kernelcast.cli.kafka import (
    KafkaOptions,
    application,
    login_name,
    show_table,
    write_event,
)
from kernelcast.runtime.command import command
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.runtime.terminal import printable
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.events import to_event
from kernelcast.wire.identity import PROGRAM_PATTERN
from kernelcast.wire.topics import HINTS, ORDERS, OUTCOMES
from kernelcast.wire.tuning.approvals import Approval, ApprovalState, search_id
from kernelcast.wire.tuning.orders import ANY, StopOrder, stop_event

hints = application("List hints and their outcomes, explain, approve or reject them, and stop trials.")
HEAD: Final = ("id", "issued", "program", "tunable", "value", "expected", "states", "measured", "rule")
DAY_NS: Final = 24 * 3600 * 1_000_000_000
RECENT_NS: Final = DAY_NS
MAX_CANDIDATES: Final = 1_000_000
"""Of the approval of a search; a space has far fewer, and readers refuse integers beyond 64 bits."""
MAX_DAYS: Final = 3650
"""Longest validity of an approval; time stamps end in the year 2262."""


HintId = Annotated[str, typer.Argument(metavar="ID", help="Of the hint; its first characters suffice.")]
SearchedProgram = Annotated[str, typer.Argument(metavar="PROGRAM", help="Its name.")]
SearchedSpace = Annotated[str, typer.Argument(metavar="SPACE", help="Name of a space with changes_results=True.")]
Reason = Annotated[str, typer.Option("--reason", help="For people; programs report it.")]
By = Annotated[str | None, typer.Option("--by", help="Who orders it; default: the login name.")]


class ExportState(StrEnum):
    """Hints of an export."""

    KEPT = "kept"
    APPROVED = "approved"


class ExportFormat(StrEnum):
    """Form of an export."""

    JSON = "json"
    CSV = "csv"


@hints.command("list")
@command
def list_command(
    *,
    all_: Annotated[bool, typer.Option("--all", help="Also those without news for 24 hours.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything about them, a JSON object a line.")] = False,
    options: KafkaOptions,
) -> None:
    """Show hints and their outcomes, the newest first."""
    known = read_known(options.settings("hints"), HINTS, OUTCOMES, ORDERS)
    since_ns = 0 if all_ else time.time_ns() - RECENT_NS
    chosen = [one for one in known.newest_first() if one.last_ns >= since_ns]
    if as_json:
        for one in chosen:
            typer.echo(json.dumps(one.as_json(), ensure_ascii=False))
    else:
        show_table(HEAD, [_row(one) for one in chosen])
    for order in known.listed_orders:
        typer.echo(printable(order_text(order)), err=True)
    for approval in known.approvals.values():
        if approval.is_search and approval.expires_at_ns > time.time_ns():
            typer.echo(printable(search_text(approval)), err=True)
    if known.unusable:
        typer.echo(f"{known.unusable} messages are neither hints nor outcomes nor orders", err=True)


@hints.command("watch")
@command
def watch_command(*, options: KafkaOptions) -> None:
    """Show new hints, outcomes and stop orders as they come, one line each, until Ctrl-C."""
    reader = open_reader(options.settings("hints"))
    try:
        for line in follow(reader, until=lambda: False):
            typer.echo(printable(line))
            sys.stdout.flush()
    except KeyboardInterrupt:
        pass
    finally:
        reader.close()


@hints.command("explain")
@command
def explain_command(
    hint_id: HintId,
    *,
    options: KafkaOptions,
) -> None:
    """Explain a hint in sentences: its reasons, the expectation, and the actions and measurements of each process."""
    known = read_known(options.settings("hints"), HINTS, OUTCOMES, ORDERS)
    for sentence in explanation(record_of(known, hint_id)):
        typer.echo(printable(sentence))


@hints.command("export")
@command
def export_command(
    *,
    form: Annotated[ExportFormat, typer.Option("--format", help="One JSON object a line, or CSV.")] = ExportFormat.JSON,
    state: Annotated[
        ExportState, typer.Option("--state", help="Kept values, or approved ones without a decision.")
    ] = ExportState.KEPT,
    program: Annotated[str | None, typer.Option("--program", help="Only of this program.")] = None,
    granularity: Annotated[
        str | None, typer.Option("--granularity", help="Only values that change at each call, step, epoch or restart.")
    ] = None,
    options: KafkaOptions,
) -> None:
    """Write kept values with their measured gains, or approved ones that wait to be rolled out; the newest first.

    A program that is started with KERNELCAST_SET=@FILE begins with the kept values in a file of this output.
    """
    known = read_known(options.settings("hints"), HINTS, OUTCOMES, ORDERS)
    rows = [
        row
        for row in (kept_rows(known) if state is ExportState.KEPT else approved_rows(known, time.time_ns()))
        if program in (None, row["program"]) and granularity in (None, row["granularity"])
    ]
    if form is ExportFormat.JSON:
        for row in rows:
            typer.echo(json.dumps(row, ensure_ascii=False))
        return
    writer = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, "rules": " ".join(row["rules"])} for row in rows)


@hints.command("report")
@command
def report_command(
    hint_id: HintId,
    *,
    options: KafkaOptions,
) -> None:
    """Write the outcome of a roll-out by restart; stdin has the output of `python -m kernelcast.tuning.runs`."""
    kafka = options.settings("hints")
    require(kafka, OUTCOMES)
    record = record_of(read_known(kafka, HINTS, OUTCOMES, ORDERS), hint_id)
    outcome = outcome_of(record, sys.stdin.read())
    event = to_event(outcome, source=f"/{CLIENT}", time_ns=time.time_ns())
    write_event(kafka, client=CLIENT, topic=OUTCOMES.name, key=outcome.hint_id, event=event, subject="the outcome")
    typer.echo(printable(f"{outcome.program} {outcome.tunable} = {outcome.value}: {outcome.decision}"))


@hints.command("stop")
@command
def stop_command(
    *,
    program: Annotated[str, typer.Option("--program", help="Only this program.")] = ANY,
    node: Annotated[str, typer.Option("--node", help="Only on this node, as its exporter names it.")] = ANY,
    reason: Reason = "",
    by: By = None,
    options: KafkaOptions,
) -> None:
    """End running trials with the old values, and begin nothing, until `kernelcast hints resume`."""
    for name, value in (("--program", program), ("--node", node)):
        if not PROGRAM_PATTERN.fullmatch(value):
            raise ConfigurationError(f"{name} is {value!r}; it must be 1 to 128 printable characters")
    check_reason(reason)
    kafka = options.settings("hints")
    require(kafka, ORDERS)
    order = StopOrder(program, node, reason=reason, by=login_name() if by is None else by, time_ns=time.time_ns())
    _write(kafka, order)
    typer.echo(f"{order_text(order)}; `kernelcast hints resume` lifts it")


@hints.command("resume")
@command
def resume_command(
    *,
    program: Annotated[str | None, typer.Option("--program", help="Only orders for this program.")] = None,
    node: Annotated[str | None, typer.Option("--node", help="Only orders for this node.")] = None,
    by: By = None,
    options: KafkaOptions,
) -> None:
    """Lift stop orders, by default all of them, so that trials may begin again."""
    kafka = options.settings("hints")
    lifted: list[StopOrder] = []
    left: list[StopOrder] = []
    for order in read_known(kafka, ORDERS).listed_orders:
        chosen = program in (None, order.program) and node in (None, order.node)
        (lifted if chosen else left).append(order)
    person = login_name() if by is None else by
    for order in lifted:
        again = StopOrder(order.program, order.node, in_force=False, by=person, time_ns=time.time_ns())
        _write(kafka, again)
        typer.echo(printable(order_text(again)))
    if not lifted:
        typer.echo("no such stop order is in force")
    for order in left:
        typer.echo(printable(f"still in force: {order_text(order)}"))


@hints.command("approve-search")
@command
def approve_search_command(  # noqa: PLR0913  the command line
    program: SearchedProgram,
    space: SearchedSpace,
    *,
    most: Annotated[int, typer.Option("--most", help="Different configurations that may be tried.")] = 20,
    days: Annotated[float, typer.Option("--days", help="How long the approval is valid.")] = 7.0,
    code_version: Annotated[str, typer.Option("--code-version", help="Only this version of the program.")] = "",
    device_model: Annotated[str, typer.Option("--device-model", help="Only on this GPU model.")] = "",
    reason: Reason = "",
    by: By = None,
    options: KafkaOptions,
) -> None:
    """Let a program search a space that changes its results, within a bound. The newest answer about a space counts.

    A program rejects it, with the reason, for a collective space and one with per="call": `kernelcast hints list`.
    """
    if not 0 < days <= MAX_DAYS:
        raise ConfigurationError(f"--days is {days:g}; it must be above 0, at most {MAX_DAYS}")
    if not 1 <= most <= MAX_CANDIDATES:
        raise ConfigurationError(f"--most is {most}; at least one candidate must be allowed, at most {MAX_CANDIDATES}")
    now_ns = time.time_ns()
    answered = Approval(
        search_id(program, space),
        program,
        space,
        "",
        device_model,
        code_version,
        expires_at_ns=now_ns + round(days * DAY_NS),
        reason=reason,
        by=login_name() if by is None else by,
        time_ns=now_ns,
        most=most,
    )
    answer_search(options.settings("hints"), answered)


@hints.command("reject-search")
@command
def reject_search_command(
    program: SearchedProgram,
    space: SearchedSpace,
    *,
    reason: Reason = "",
    by: By = None,
    options: KafkaOptions,
) -> None:
    """Withdraw the approval of a search: it ends with the kept configuration at its next step."""
    kafka = options.settings("hints")
    known = read_known(kafka, ORDERS).approvals.get(search_id(program, space))
    if known is None:
        raise ConfigurationError(f"no approval lets {program} search {space}; `kernelcast hints list`")
    person = login_name() if by is None else by
    withdrawn = replace(known, state=ApprovalState.WITHDRAWN, reason=reason, by=person, time_ns=time.time_ns())
    answer_search(kafka, withdrawn)


@hints.command("approve")
@command
def approve_command(
    hint_id: HintId,
    *,
    reason: Reason = "",
    by: By = None,
    options: KafkaOptions,
) -> None:
    """Let programs try a hint that changes results. The newest answer to a hint counts."""
    answer(options.settings("hints"), hint_id, ApprovalState.APPROVED, reason=reason, by=by)


@hints.command("reject")
@command
def reject_command(
    hint_id: HintId,
    *,
    reason: Reason = "",
    by: By = None,
    options: KafkaOptions,
) -> None:
    """Reject a hint that changes results: an open trial ends, and the value is not proposed again for this code."""
    answer(options.settings("hints"), hint_id, ApprovalState.WITHDRAWN, reason=reason, by=by)


def _write(kafka: KafkaSettings, order: StopOrder) -> None:
    event = stop_event(order, source=f"/{CLIENT}")
    write_event(kafka, client=CLIENT, topic=ORDERS.name, key=order.key, event=event, subject="the order")


def _row(record: HintRecord) -> tuple[str, ...]:
    hint = record.hint
    return (
        record.hint_id,
        moment(record.time_ns),
        record.program,
        record.tunable,
        record.value,
        ratio_text(hint.expected_ratio, hint.expected_interval) if hint else "",
        states_text(record),
        measured_text(record),
        ", ".join(record.rules),
    )
