"""`kernelcast topics list|apply`: compares Kafka's topics with the contract, and applies it."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from kernelcast.runtime.command import command
from kernelcast.runtime.exits import EXIT_RUN_TIME
from kernelcast.runtime.kafka.admin import (
    Difference,
    TopicChange,
    TopicResult,
    TopicState,
    apply_topics,
    differences,
    list_topics,
)
from kernelcast.runtime.settings.service import KafkaSettings, LogSettings, Section, load
from kernelcast.wire.topics import TOPICS, Topic

topics = typer.Typer(
    help="List Kafka's topics, or create and correct them.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

ConfigFile = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Settings file (YAML).")]
BootstrapServers = Annotated[
    str | None, typer.Option("--kafka.bootstrap-servers", metavar="HOST:PORT[,…]", help="Kafka brokers.")
]
MAX_REPLICATION_FACTOR: Final = 32


class TopicSettings(Section):
    """The part of the settings that these commands read."""

    kafka: KafkaSettings = KafkaSettings()
    log: LogSettings = LogSettings()


@topics.command("list")
@command
def list_command(config: ConfigFile = None, bootstrap_servers: BootstrapServers = None) -> None:
    """Show the broker's topics beside the contract; exits with 1 if one of ours is missing or differs."""
    found = list_topics(_kafka(config, bootstrap_servers))
    missing = [topic.name for topic in TOPICS if topic.name not in found]
    differing = {topic.name: differences(topic, found[topic.name]) for topic in TOPICS if topic.name in found}
    rows = [_row(topic, found.get(topic.name), differing.get(topic.name, [])) for topic in TOPICS]
    others = sorted(found.keys() - {topic.name for topic in TOPICS})
    rows += [
        (name, str(found[name].partitions), found[name].config.get("cleanup.policy", ""), "", "", "") for name in others
    ]
    _show(("topic", "partitions", "cleanup", "key", "what flows through it", "differs"), rows)
    wrong = [name for name, settings in differing.items() if settings]
    for names, fault in ((missing, "are missing"), (wrong, "have settings that differ from the contract")):
        if names:
            remedy = f"{fault}: {', '.join(names)}; `kernelcast topics apply` mends that"
            sys.stderr.write(f"{len(names)} of {len(TOPICS)} topics {remedy}\n")
    if missing or wrong:
        raise typer.Exit(EXIT_RUN_TIME)


def _row(topic: Topic, state: TopicState | None, differing: Sequence[Difference]) -> tuple[str, ...]:
    """The table's row of one topic of the contract."""
    if state is None:
        return topic.name, "missing", topic.cleanup, topic.key, topic.help, ""
    cleanup = state.config.get("cleanup.policy", topic.cleanup)
    differs = ", ".join(f"{one.setting}={one.found} (should be {one.wanted})" for one in differing)
    return topic.name, str(state.partitions), cleanup, topic.key, topic.help, differs


@topics.command("apply")
@command
def apply_command(
    config: ConfigFile = None,
    bootstrap_servers: BootstrapServers = None,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", min=1, max=MAX_REPLICATION_FACTOR, help="Of topics made now.")
    ] = 1,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=1, help="Of topics made now; fixed from then on.", show_default=False),
    ] = None,
) -> None:
    """Create missing topics and correct settings; exits with 1 if a topic still differs from the contract."""
    changes = apply_topics(
        _kafka(config, bootstrap_servers), replication_factor=replication_factor, partitions=partitions
    )
    _show(("topic", "outcome", "detail"), [(change.topic, change.outcome.value, change.detail) for change in changes])
    for remark, names in _remarks(changes).items():
        sys.stderr.write(f"{', '.join(names)}: {remark}\n")
    if any(change.outcome is TopicResult.TOUCHED for change in changes):
        sys.stderr.write(
            "this broker cannot be administrated; its topics have the partitions and settings it gives them\n"
        )
    if not all(change.good for change in changes):
        raise typer.Exit(EXIT_RUN_TIME)


def _remarks(changes: Sequence[TopicChange]) -> dict[str, list[str]]:
    """The topics that each remark is about; "all topics" where it is about every one."""
    topics_of: dict[str, list[str]] = {}
    for change in changes:
        if change.remark:
            topics_of.setdefault(change.remark, []).append(change.topic)
    return {remark: ["all topics"] if len(names) == len(changes) else names for remark, names in topics_of.items()}


def _kafka(config: Path | None, bootstrap_servers: str | None) -> KafkaSettings:
    flags = {"kafka.bootstrap_servers": bootstrap_servers}
    return load("topics", TopicSettings, path=config, flags=flags, environ=os.environ).kafka


def _show(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table for people; tab-separated lines for pipes."""
    if not sys.stdout.isatty():
        for row in (head, *rows):
            typer.echo("\t".join(row))
        return
    table = Table(*head)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
