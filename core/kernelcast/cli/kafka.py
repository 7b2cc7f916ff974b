"""Shared parts of commands that read or write a topic: options, settings of Kafka, tables, and the writing of an event.

`findings`, `hints` and `topics` use it.
"""

import getpass
import os
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kernelcast.runtime.kafka.producer import Producer, Undelivered
from kernelcast.runtime.kafka.replay import TO_THE_END
from kernelcast.runtime.settings.service import KafkaSettings, LogSettings, Section, load
from kernelcast.runtime.terminal import printable
from kernelcast.wire.cloudevents import encode_event
from kernelcast.wire.errors import BrokerError, ConfigurationError, EventError

SEND_SECONDS: Final = 10.0
"""Time in which Kafka must confirm an event."""
MAX_NAMED: Final = 5
"""Ids that an error message lists."""
NO_LOG: Final = {"log_level": "2"}
"""Property of a reader whose librdkafka logs critical errors only."""
TO_THE_END_AND_NO_LOG: Final = {**NO_LOG, **TO_THE_END}


class ClientSettings(Section):
    """The part of the settings that these commands read."""

    kafka: KafkaSettings = KafkaSettings()
    log: LogSettings = LogSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """Options with which a command finds Kafka, as they were given; see `runtime.command.command`."""

    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Settings file (YAML).")] = None
    bootstrap_servers: Annotated[
        str | None, typer.Option("--kafka.bootstrap-servers", metavar="HOST:PORT[,…]", help="Kafka brokers.")
    ] = None

    def settings(self, command: str) -> KafkaSettings:
        """Return the settings of Kafka from flags, environment and file.

        Args:
            command: Name of the command; its own section of the file is accepted.

        Raises:
            ConfigurationError: They are unusable.
        """
        flags = {"kafka.bootstrap_servers": self.bootstrap_servers}
        return load(command, ClientSettings, path=self.config, flags=flags, environ=os.environ).kafka


def application(help_text: str) -> typer.Typer:
    """Return a group of commands that prints its help if none is named."""
    return typer.Typer(
        help=help_text,
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )


def show_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a table to a terminal, tab-separated lines to anything else."""
    if not sys.stdout.isatty():
        for row in (head, *rows):
            typer.echo("\t".join(map(printable, row)))
        return
    table = Table(*head)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    Console().print(table)


def write_event(
    kafka: KafkaSettings, *, client: str, topic: str, key: str, event: dict[str, Any], subject: str
) -> None:
    """Write one event, and wait until Kafka has it.

    Args:
        kafka: Kafka's settings.
        client: Name of this client.
        topic: The topic.
        key: The record key.
        event: The event.
        subject: Name for people, such as `the mark of f00`.

    Raises:
        ConfigurationError: A text in it has bytes that are no UTF-8, or it is too long.
        BrokerError: Kafka refused it, or did not answer.
    """
    try:
        record_key, value = key.encode(), encode_event(event)
    except (UnicodeEncodeError, EventError) as error:
        raise ConfigurationError(f"{subject} cannot be written: {error}; check the options") from None
    results: list[Undelivered | None] = []
    producer = Producer(kafka, client_id=client)
    producer.send(topic, key=record_key, value=value, on_delivery=results.append)
    producer.close(SEND_SECONDS)
    if results != [None]:
        reason = results[0] if results else f"Kafka did not answer within {SEND_SECONDS:g} s"
        raise BrokerError(f"{subject} was not written to {topic}: {reason}; repeat it")


def login_name() -> str:
    """Return the name of the user who runs the command; empty if it is unknown."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def one_of(known: Collection[str], wanted: str, *, unknown: str) -> str:
    """Return the id that is the wanted text, or the only one that begins with it.

    Raises:
        ConfigurationError: With the message `unknown` if there is none, or with the ids if there are several.
    """
    found = [wanted] if wanted in known else sorted(one for one in known if one.startswith(wanted))
    if not wanted or not found:
        raise ConfigurationError(unknown)
    if len(found) > 1:
        raise ConfigurationError(
            f"{wanted!r} begins {len(found)} ids: {', '.join(found[:MAX_NAMED])}; write more of it"
        )
    return found[0]
