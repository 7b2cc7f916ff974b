"""Reads the topics of hints, outcomes and orders for `command`: to their present end, or as messages come."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from kernelcast.cli.hints.known import KnownHints, message_ns
from kernelcast.cli.hints.sentences import line
from kernelcast.cli.kafka import NO_LOG, TO_THE_END_AND_NO_LOG
from kernelcast.runtime.kafka.admin import Admin
from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.kafka.replay import ReplayConsumer, to_end
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.errors import BrokerError
from kernelcast.wire.topics import HINTS, ORDERS, OUTCOMES, Topic

CLIENT: Final = "kernelcast-hints"
"""Name of the client and its group, and source of the events that it writes."""
READ_SECONDS: Final = 0.2
MAX_MESSAGES: Final = 500


def open_reader(kafka: KafkaSettings, *, properties: Mapping[str, str] = NO_LOG) -> Consumer:
    """Return a consumer.

    Args:
        kafka: Settings of the connection.
        properties: Of librdkafka's client.

    Raises:
        BrokerAccessError: Kafka cannot be reached.
    """
    Admin(kafka).can_administrate()  # names the reason and the remedy if Kafka cannot be reached
    return Consumer(kafka, group_id=CLIENT, overrides=properties)


def read_known(kafka: KafkaSettings, *topics: Topic) -> KnownHints:
    """Read topics to their present end, one after the other.

    Raises:
        BrokerError: Kafka does not answer, or has no such topic.
    """
    reader = open_reader(kafka, properties=TO_THE_END_AND_NO_LOG)
    known = KnownHints()
    try:
        for topic in topics:
            for message in to_end(reader, partitions_of(reader, topic)):
                known.add(message)
    finally:
        reader.close()
    return known


def require(kafka: KafkaSettings, topic: Topic) -> None:
    """Check that Kafka has a topic.

    Raises:
        BrokerError: Kafka cannot be reached, or has no such topic.
    """
    reader = open_reader(kafka)
    try:
        if not reader.partitions(topic.name):
            raise _missing(topic)
    finally:
        reader.close()


def partitions_of(reader: ReplayConsumer, topic: Topic) -> list[Any]:
    """Return the partitions of a topic; none of the topic of orders while Kafka has not got it.

    Raises:
        BrokerError: Kafka does not answer, or has no such topic.
    """
    partitions = reader.partitions(topic.name)
    if not partitions and topic is not ORDERS:
        raise _missing(topic)
    return partitions


def follow(
    reader: ReplayConsumer,
    *,
    until: Callable[[], bool],
    topics: Sequence[Topic] = (HINTS, OUTCOMES, ORDERS),
    clock: Callable[[], int] = time.time_ns,
) -> Iterator[str]:
    """Yield one line for each new message, from the present end on.

    Args:
        reader: The consumer.
        until: Ends it when it returns True.
        topics: The topics to read.
        clock: Unix nanoseconds, for messages without a time.

    Raises:
        BrokerError: Kafka does not answer, or has no such topic.
    """
    partitions = [each for topic in topics for each in partitions_of(reader, topic)]
    for partition in partitions:
        partition.offset = reader.watermarks(partition)[1]
    reader.assign(partitions)
    known = KnownHints()
    while not until():
        messages, _ = reader.consume(MAX_MESSAGES, READ_SECONDS)
        reader.ends()
        for message in messages:
            data = known.add(message)
            if data is not None:
                yield line(data, message_ns(message) or clock())
        # Hints and outcomes are not kept, so that memory stays fixed.
        known = KnownHints(unusable=known.unusable, outcome_ids=known.outcome_ids)


def _missing(topic: Topic) -> BrokerError:
    return BrokerError(f"Kafka has no topic {topic.name}; create it with `kernelcast topics apply`")
