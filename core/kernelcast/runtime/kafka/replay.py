"""A topic read from where one likes to where it ends now, without a group."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol

READ_SECONDS: Final = 0.2
LONGEST_READ_SECONDS: Final = 60.0
QUIET_SECONDS: Final = 3.0
_BATCH: Final = 200


class ReplayConsumer(Protocol):
    """The part of a consumer that is needed here."""

    def partitions(self, topic: str) -> list[Any]:
        """Every partition of a topic."""
        ...

    def watermarks(self, partition: Any) -> tuple[int, int]:
        """First offset kept, next offset written."""
        ...

    def assign(self, partitions: Sequence[Any]) -> None:
        """Read these."""
        ...

    def consume(self, max_messages: int, timeout_seconds: float) -> tuple[list[Any], list[Any]]:
        """Messages and passing errors."""
        ...

    def ends(self) -> list[Any]:
        """Partitions read to their end since the last call; only with `enable.partition.eof`."""
        ...

    def close(self, timeout_seconds: float = ...) -> None:
        """Stop reading; waits for the client at most this long."""
        ...


def to_end(
    reader: ReplayConsumer, partitions: Sequence[Any], *, monotonic: Callable[[], float] = time.monotonic
) -> Iterator[Any]:
    """Read partitions to where they end now.

    The last offsets may hold no message, for compaction takes them away: the reader says so with
    `enable.partition.eof`; without, three quiet seconds are taken for it. Never longer than a minute.

    Args:
        reader: Reads; it is left open.
        partitions: With the offset to begin at; negative for the beginning.
        monotonic: A clock, in seconds.

    Yields:
        Messages.

    Raises:
        BrokerError: Kafka does not answer.
    """
    left: dict[int, int] = {}
    begun = []
    for partition in partitions:
        low, high = reader.watermarks(partition)
        partition.offset = max(low, partition.offset)
        if high > partition.offset:
            left[partition.partition] = high
            begun.append(partition)
    reader.assign(begun)
    began = heard = monotonic()
    while left and monotonic() - began < LONGEST_READ_SECONDS and monotonic() - heard <= QUIET_SECONDS:
        messages, _ = reader.consume(_BATCH, READ_SECONDS)
        for message in messages:
            heard = monotonic()
            yield message
            if message.offset() + 1 >= left.get(message.partition(), 0):
                left.pop(message.partition(), None)
        for end in reader.ends():
            left.pop(end.partition, None)
