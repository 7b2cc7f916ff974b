"""Receives batches of messages: the first message after a pause at once, further ones together.

`reader.PartitionReader` uses it for services whose latency matters (`prompt`).
"""

from collections.abc import Callable
from typing import Any, Final

SMALL_BATCH_MESSAGES: Final = 16
"""Messages from which on a batch is not small: handling a batch costs about as much as handling this many messages."""


class PromptReceiver:
    """Receives batches; only one thread may use it.

    librdkafka waits until a batch is full or its time is up. With a backlog of less than a batch that time would be
    lost, so messages that are there are taken at once. After a small batch the next one may grow for the usual time:
    with a time-out of 50 ms, messages that arrive one by one make at most 20 batches a second. It grows only until it
    is no longer small, so that a backlog whose first messages made a small batch is read without a wait.

    Args:
        consume: confluent_kafka's: waits until there are that many messages or the time is up, and returns those that
            came.
        monotonic: The clock.
    """

    def __init__(self, consume: Callable[[int, float], list[Any]], monotonic: Callable[[], float]) -> None:
        self._consume, self._monotonic = consume, monotonic
        self._due_seconds = 0.0

    def consume(self, max_messages: int, timeout_seconds: float) -> list[Any]:
        """Return the next messages; none if none came within the time-out."""
        received = list(self._consume(1, timeout_seconds))
        if received and max_messages > 1:
            wait_seconds = min(max(0.0, self._due_seconds - self._monotonic()), timeout_seconds)
            received += self._consume(min(max_messages, SMALL_BATCH_MESSAGES) - 1, wait_seconds)
            is_small = len(received) < SMALL_BATCH_MESSAGES
            if not is_small and len(received) < max_messages:
                received += self._consume(max_messages - len(received), 0.0)
            self._due_seconds = self._monotonic() + (timeout_seconds if is_small else 0.0)
        return received
