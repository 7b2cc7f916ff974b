"""Reads a topic from any offset to its present end, without a group.

Services read their state with it when they start; `kernelcast hints` and `findings` read the topics that they show.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

import structlog

READ_SECONDS: Final = 0.2
"""Time-out of one call of `consume`."""
LONGEST_READ_SECONDS: Final = 60.0
"""A service that starts must not wait longer for its state; it goes on with the messages that it has read."""
QUIET_SECONDS: Final = 15.0
"""Time without a message after which reading ends early; Kafka needs 9 s to replace a broker that died."""
_BATCH: Final = 200
TO_THE_END: Final = {"fetch.wait.max.ms": "10"}
"""Property of a reader that stops at the end. A broker answers the requests of a connection one after the other, so
each partition's query for its offsets would wait behind a fetch, for the 500 ms that a fetch waits by default."""


class ReplayConsumer(Protocol):
    """The part of a consumer that is needed here."""

    def partitions(self, topic: str) -> list[Any]:
        """Return every partition of a topic."""
        ...

    def watermarks(self, partition: Any) -> tuple[int, int]:
        """Return the first offset kept, and the next one to be written."""
        ...

    def assign(self, partitions: Sequence[Any]) -> None:
        """Start reading these partitions."""
        ...

    def consume(self, max_messages: int, timeout_seconds: float) -> tuple[list[Any], list[Any]]:
        """Return messages and transient errors."""
        ...

    def ends(self) -> list[Any]:
        """Return the partitions read to their end since the last call."""
        ...

    def close(self, timeout_seconds: float = ...) -> None:
        """Stop reading; waits for the client at most this long."""
        ...


def to_end(
    reader: ReplayConsumer, partitions: Sequence[Any], *, monotonic: Callable[[], float] = time.monotonic
) -> Iterator[Any]:
    """Read partitions to their present end.

    The last offsets may have no message, because compaction removes messages, so the reader needs `TO_THE_END`. Reading
    ends early after 15 s without a message, and after a minute in all; a warning says so.

    Args:
        reader: The consumer; it is left open.
        partitions: Partitions with their start offsets; negative for the beginning.
        monotonic: A clock, in seconds.

    Yields:
        Messages.

    Raises:
        BrokerError: Kafka does not answer.
    """
    unread_ends: dict[int, int] = {}
    unread = []
    for partition in partitions:
        low, high = reader.watermarks(partition)
        partition.offset = max(low, partition.offset)
        if high > partition.offset:
            unread_ends[partition.partition] = high
            unread.append(partition)
    reader.assign(unread)
    begin_seconds = last_message_seconds = monotonic()
    while (
        unread_ends
        and monotonic() - begin_seconds < LONGEST_READ_SECONDS
        and monotonic() - last_message_seconds <= QUIET_SECONDS
    ):
        messages, _ = reader.consume(_BATCH, READ_SECONDS)
        for message in messages:
            last_message_seconds = monotonic()
            yield message
            if message.offset() + 1 >= unread_ends.get(message.partition(), 0):
                unread_ends.pop(message.partition(), None)
        for end in reader.ends():  # a new leader may report an end before the one at the start
            if end.offset >= unread_ends.get(end.partition, 0):
                unread_ends.pop(end.partition, None)
    if unread_ends:
        structlog.stdlib.get_logger("kafka.replay").warning(
            "topic not read to its end",
            topic=partitions[0].topic,
            partitions=sorted(unread_ends),
            seconds=round(monotonic() - begin_seconds, 1),
        )
