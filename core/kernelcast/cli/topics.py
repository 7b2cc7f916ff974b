"""`kernelcast topics list|apply`: Kafka's topics beside what the contract says."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from kernelcast.runtime.admin import Outcome, apply_topics, list_topics
from kernelcast.runtime.command import command
from kernelcast.runtime.exits import EXIT_RUN_TIME
from kernelcast.runtime.settings import KafkaSettings, LogSettings, Section, load
from kernelcast.wire.topics import TOPICS

topics = typer.Typer(
    help="List Kafka's topics, or make them what they should be.",
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
    """What the commands here read of the settings file."""

    kafka: KafkaSettings = KafkaSettings()
    log: LogSettings = LogSettings()


@topics.command("list")
@command
def list_command(config: ConfigFile = None, bootstrap_servers: BootstrapServers = None) -> None:
    """Show the broker's topics beside the contract; exits with 1 if one of ours is missing."""
    found = list_topics(_kafka(config, bootstrap_servers))
    rows = []
    for topic in TOPICS:
        state = found.get(topic.name)
        partitions = str(state.partitions) if state is not None else "missing"
        cleanup = state.config.get("cleanup.policy", "") if state is not None else ""
        rows.append((topic.name, partitions, cleanup or topic.cleanup, topic.key, topic.help))
    others = sorted(found.keys() - {topic.name for topic in TOPICS})
    rows += [
        (name, str(found[name].partitions), found[name].config.get("cleanup.policy", ""), "", "") for name in others
    ]
    _show(("topic", "partitions", "cleanup", "key", "what flows through it"), rows)
    missing = [topic.name for topic in TOPICS if topic.name not in found]
    if missing:
        sys.stderr.write(
            f"{len(missing)} of {len(TOPICS)} topics are missing; make them with `kernelcast topics apply`\n"
        )
        raise typer.Exit(EXIT_RUN_TIME)


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
    """Make what is missing and set what differs; exits with 1 if a topic is not as it should be."""
    changes = apply_topics(
        _kafka(config, bootstrap_servers), replication_factor=replication_factor, partitions=partitions
    )
    _show(("topic", "outcome", "detail"), [(change.topic, change.outcome.value, change.detail) for change in changes])
    if any(change.outcome is Outcome.TOUCHED for change in changes):
        sys.stderr.write(
            "this broker cannot be administrated; its topics have the partitions and settings it gives them\n"
        )
    if not all(change.good for change in changes):
        raise typer.Exit(EXIT_RUN_TIME)


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
