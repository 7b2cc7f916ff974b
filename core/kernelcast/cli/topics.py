"""`kernelcast topics list|apply`: compares Kafka's topics with the contract (`wire.topics`), and applies it."""

import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from kernelcast.cli.kafka import KafkaOptions, application, show_table
from kernelcast.runtime.command import command
from kernelcast.runtime.exits import EXIT_RUN_TIME
from kernelcast.runtime.kafka.admin import (
    SettingDifference,
    TopicChange,
    TopicResult,
    TopicState,
    apply_topics,
    differences,
    list_topics,
)
from kernelcast.wire.topics import TOPICS, Topic

topics = application("List Kafka's topics, or create and correct them.")
MAX_REPLICATION_FACTOR: Final = 32


@topics.command("list")
@command
def list_command(options: KafkaOptions) -> None:
    """Show the broker's topics beside the contract; exits with 1 if one of ours is missing or differs."""
    found = list_topics(options.settings("topics"))
    missing = [topic.name for topic in TOPICS if topic.name not in found]
    differing = {topic.name: differences(topic, found[topic.name]) for topic in TOPICS if topic.name in found}
    rows = [_row(topic, found.get(topic.name), differing.get(topic.name, [])) for topic in TOPICS]
    others = sorted(found.keys() - {topic.name for topic in TOPICS})
    rows += [
        (name, str(found[name].partitions), found[name].config.get("cleanup.policy", ""), "", "", "") for name in others
    ]
    show_table(("topic", "partitions", "cleanup", "key", "what flows through it", "differs"), rows)
    wrong = [name for name, settings in differing.items() if settings]
    for names, fault in ((missing, "are missing"), (wrong, "have settings that differ from the contract")):
        if names:
            remedy = f"{fault}: {', '.join(names)}; `kernelcast topics apply` mends that"
            sys.stderr.write(f"{len(names)} of {len(TOPICS)} topics {remedy}\n")
    if missing or wrong:
        raise typer.Exit(EXIT_RUN_TIME)


def _row(topic: Topic, state: TopicState | None, differing: Sequence[SettingDifference]) -> tuple[str, ...]:
    """The table's row of one topic of the contract."""
    if state is None:
        return topic.name, "missing", topic.cleanup, topic.key, topic.help, ""
    cleanup = state.config.get("cleanup.policy", topic.cleanup)
    differs = ", ".join(f"{one.setting}={one.found} (should be {one.wanted})" for one in differing)
    return topic.name, str(state.partitions), cleanup, topic.key, topic.help, differs


@topics.command("apply")
@command
def apply_command(
    options: KafkaOptions,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            min=1,
            max=MAX_REPLICATION_FACTOR,
            help="Of topics made now; default: 3, or one on each of fewer brokers, but at least the brokers' default.",
            show_default=False,
        ),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            min=1,
            help="Of topics made now; fixed from then on. Orders and policy have one.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Create missing topics and correct settings; exits with 1 if a topic still differs from the contract."""
    changes = apply_topics(
        options.settings("topics"),
        replication_factor=replication_factor,
        partitions=partitions,
    )
    show_table(
        ("topic", "outcome", "detail"), [(change.topic, change.result.value, change.detail) for change in changes]
    )
    for remark, names in _remarks(changes).items():
        sys.stderr.write(f"{', '.join(names)}: {remark}\n")
    if any(change.result is TopicResult.TOUCHED for change in changes):
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
