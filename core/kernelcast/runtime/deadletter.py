"""Messages that could not be used, kept on `kernelcast.deadletter` with the reason; they never stop a consumer."""

import hashlib
import time
from collections.abc import Callable
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Counter

from kernelcast.runtime.kafka import Headers
from kernelcast.wire.topics import DEADLETTER

MAX_EXTRA_BYTES: Final = 64 * 1024


class Sender(Protocol):
    """The part of a producer that is needed here."""

    def send(self, topic: str, *, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        """Queue a message."""


class Received(Protocol):
    """A message as confluent_kafka.Message has it."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...


class DeadLetters:
    """Sends poison messages away."""

    def __init__(
        self,
        producer: Sender,
        *,
        clock: Callable[[], float] = time.monotonic,
        registry: CollectorRegistry | None = None,
        max_per_second: float = 10.0,
    ) -> None:
        self._producer = producer
        self._clock = clock
        self._counter = Counter(
            "kernelcast_deadletter_messages_total",
            "Messages that could not be used",
            ["outcome"],
            registry=registry if registry is not None else CollectorRegistry(),
        )
        self._max_per_second = max_per_second

    def send(self, message: Received, error: Exception) -> None:
        """Put a message aside, with where it came from and what was wrong with it; never raises."""
        value = message.value()
        headers = [
            ("kernelcast.topic", str(message.topic()).encode()),
            ("kernelcast.partition", str(message.partition()).encode()),
            ("kernelcast.offset", str(message.offset()).encode()),
            ("kernelcast.error", str(error).encode()),
            ("kernelcast.error_type", type(error).__name__.encode()),
        ]
        if value is not None:
            headers.append(("kernelcast.sha256", hashlib.sha256(value).hexdigest().encode()))
        self._producer.send(DEADLETTER.name, key=message.key(), value=value, headers=headers)
        self._counter.labels("sent").inc()
