"""Sends messages that cannot be used to `kernelcast.deadletter` with the reason, so that they never stop a consumer.

The consuming threads of exporter, bridge and predictor call `DeadLetters.send`.
"""

import hashlib
import time
from collections.abc import Callable
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from kernelcast.runtime.instruments import counter
from kernelcast.runtime.kafka.clients import HeaderSender, ReceivedMessage
from kernelcast.runtime.token_bucket import TokenBucket
from kernelcast.wire.catalogue import runtime
from kernelcast.wire.topics import DEADLETTER

MAX_MESSAGE_BYTES: Final = int(DEADLETTER.extra["max.message.bytes"])
HEADROOM_BYTES: Final = 64 * 1024
"""Largest size that a dead letter may have beyond its source message."""

MAX_VALUE_BYTES: Final = MAX_MESSAGE_BYTES - HEADROOM_BYTES
"""Longer values are truncated, with a checksum of the whole value, so that key and headers always fit."""

MAX_ERROR_CHARACTERS: Final = 1_000
MAX_KEY_BYTES: Final = 16 * 1024
"""With the error and the origin in the headers, a key stays within `HEADROOM_BYTES`."""
RATE_PER_SECOND: Final = 50.0
BURST: Final = 500
"""Dead letters at once, after a quiet time."""


class DeadLetters:
    """Sends messages that cannot be used to the dead letter topic, at a bounded rate; safe for several threads.

    The bound keeps a stream of bad messages from becoming a second stream of the same size.
    """

    def __init__(
        self,
        producer: HeaderSender,
        *,
        clock: Callable[[], float] = time.monotonic,
        registry: CollectorRegistry | None = None,
        max_value_bytes: int = MAX_VALUE_BYTES,
    ) -> None:
        self._producer = producer
        self._bucket = TokenBucket(1 / RATE_PER_SECOND, BURST, clock)
        self._messages = counter(runtime.DEADLETTER_MESSAGES, registry if registry is not None else CollectorRegistry())
        self._max_value_bytes = max_value_bytes
        self._log = structlog.stdlib.get_logger("deadletter")

    def expect(self, *topics: str) -> None:
        """Create the counters of these topics, at 0."""
        for topic in topics:
            for outcome in ("sent", "dropped"):
                self._messages.labels(topic, outcome)

    def send(self, message: ReceivedMessage, error: Exception) -> None:
        """Send a message to the dead letter topic, with its origin and its error; never raises."""
        topic = message.topic() or ""
        allowed = self._bucket.take()
        self._log.warning(
            "message cannot be used",
            topic=topic,
            partition=message.partition(),
            offset=message.offset(),
            error_type=type(error).__name__,
            error=str(error)[:MAX_ERROR_CHARACTERS],
        )
        if allowed:
            allowed = self._try_to_send(message, error)
        self._messages.labels(topic, "sent" if allowed else "dropped").inc()

    def _try_to_send(self, message: ReceivedMessage, error: Exception) -> bool:
        try:
            value, more = self._cut(message.value())
            headers = [*_headers(message, error), *more]
            key = message.key()
            self._producer.send(
                DEADLETTER.name, key=key[:MAX_KEY_BYTES] if key is not None else None, value=value, headers=headers
            )
        except Exception as failure:  # noqa: BLE001 - a dead letter is the last resort; nothing may escape it
            self._log.error("message lost", reason=str(failure))
            return False
        return True

    def _cut(self, value: bytes | None) -> tuple[bytes | None, list[tuple[str, bytes]]]:
        if value is None or len(value) <= self._max_value_bytes:
            return value, []
        checksum = hashlib.sha256(value).hexdigest().encode()
        return value[: self._max_value_bytes], [
            ("kernelcast.truncated", str(len(value)).encode()),
            ("kernelcast.sha256", checksum),
        ]


def _headers(message: ReceivedMessage, error: Exception) -> list[tuple[str, bytes]]:
    return [
        ("kernelcast.topic", (message.topic() or "").encode()),
        ("kernelcast.partition", str(message.partition()).encode()),
        ("kernelcast.offset", str(message.offset()).encode()),
        ("kernelcast.error", str(error)[:MAX_ERROR_CHARACTERS].encode(errors="replace")),
        ("kernelcast.error_type", type(error).__name__.encode()),
    ]
