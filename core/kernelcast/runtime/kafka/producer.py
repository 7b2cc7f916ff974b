"""The producer of all services: it never blocks its caller for long, and counts the result of every message.

librdkafka sends in threads of its own; `send`, `poll` and `flush` deliver its answers on the thread that calls them.
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Self

import confluent_kafka
import structlog
from confluent_kafka import KafkaError, KafkaException, Message
from prometheus_client import CollectorRegistry

from kernelcast.runtime.instruments import counter, gauge
from kernelcast.runtime.kafka.connect import PRODUCER_PROPERTIES, Client, connect
from kernelcast.runtime.kafka.connection_errors import ConnectionErrors
from kernelcast.runtime.kafka.topic_errors import TopicErrors
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.catalogue import runtime

Headers = Sequence[tuple[str, bytes]]
DeliveryListener = Callable[["Undelivered | None"], None]
"""Called with None once Kafka has acknowledged a message, else with the reason."""

_PERMANENT: Final = frozenset(
    (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_RECORD)
)
"""Permanent errors of a message: sending it again gives the same error."""

FULL_QUEUE_WAIT_SECONDS: Final = 0.05
"""Time that `send` waits for room in the queue; then the message is dropped and counted."""

OUTAGE_SECONDS: Final = 60.0
"""Time without a report of the connection after which the next report is of another outage."""
_PURGED: Final = frozenset((KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT))  # noqa: SLF001  librdkafka's local errors
"""Errors of messages that `close` has dropped."""

OUTCOMES: Final = ("sent", "acknowledged", "failed", "refused", "dropped")
CAUSES: Final = ("queue_full", "too_large", "refused")


class Undelivered(str):
    """Reason why Kafka does not have a message.

    Attributes:
        final: Whether sending it again is useless.
    """

    __slots__ = ("final",)
    final: bool

    def __new__(cls, reason: str, *, final: bool = False) -> Self:
        """Make a reason from its text, and whether it is final."""
        made = super().__new__(cls, reason)
        made.final = final
        return made


class Producer:
    """Writes to Kafka; safe for several threads.

    librdkafka's idempotent producer refuses all messages after a fatal error, which confluent_kafka raises wherever
    events are served; then the client is replaced by a new one.

    Attributes:
        sent: Messages with an answer from Kafka that is not a permanent refusal, for all topics together.
        acknowledged: Part of `sent`: messages that all in-sync replicas have.
        failed: Messages that Kafka refused, or did not answer within the delivery time-out.
        refused: Part of `failed`: messages with a permanent error.
        dropped: Messages that did not enter the queue.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        client_id: str,
        registry: CollectorRegistry | None = None,
        topics: Iterable[str] = (),
        properties: Mapping[str, str] = MappingProxyType({}),
        client: Client = confluent_kafka.Producer,
    ) -> None:
        """Prepare to write; it connects in the background.

        Args:
            settings: Settings of the connection.
            client_id: Names this client in the broker's logs and quotas.
            registry: Registry of the producer's own metrics; None does not expose them.
            topics: Topics that will be written to, so that their counters start at 0.
            properties: The service's properties in addition to our own; those of the settings have precedence.
            client: Replaces librdkafka's client in tests.

        Raises:
            ConfigurationError: librdkafka refuses a property.
        """
        registry = registry if registry is not None else CollectorRegistry()
        self._messages = counter(runtime.PRODUCER_MESSAGES, registry)
        self._drops = counter(runtime.PRODUCER_DROPPED, registry)
        self._log = structlog.stdlib.get_logger("kafka.producer")
        self._lock = threading.Lock()
        self._known: set[str] = set()  # topics whose counters exist
        # The newest error of the connection; an access error (TLS, login) stays, because librdkafka reports "all
        # brokers down" after it, which says less. Both end with the next acknowledgement, or when
        # librdkafka no longer reports them.
        self._connection_error = self._access_error = ""
        self._topic_errors = TopicErrors()
        self._connection, self._down_at_seconds = ConnectionErrors(), -math.inf
        self._reported_at_seconds = -math.inf
        self._settings, self._client_id, self._make = settings, client_id, client
        self._properties = properties
        self.sent = self.acknowledged = self.failed = self.refused = self.dropped = 0
        for topic in topics:
            self._create_counters(topic)
        self._client = self._connect()
        gauge(runtime.PRODUCER_QUEUE, registry).set_function(lambda: len(self))

    def send(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        on_delivery: DeliveryListener | None = None,
        partition: int | None = None,
    ) -> None:
        """Queue a message. If the queue is full, it is dropped and counted; nothing is raised.

        Args:
            topic: The topic.
            key: Chooses the partition.
            value: The message; None is a tombstone.
            headers: Names and values.
            on_delivery: Called with the result, on a thread that sends, polls or flushes.
            partition: The partition, if several keys must be in one; None selects it by the key.
        """
        self._create_counters(topic)

        def delivered(error: KafkaError | None, _message: Message) -> None:
            self._count_answer(topic, error)
            if on_delivery is not None:
                on_delivery(None if error is None else Undelivered(error.str(), final=error.code() in _PERMANENT))

        parts: dict[str, Any] = {"key": key, "value": value, "headers": list(headers)}
        if partition is not None:
            parts["partition"] = partition
        cause, reason = self._produce(topic, parts, delivered)
        if cause:
            self._drops.labels(topic, cause).inc()
            self._count(topic, "dropped")
            self._topic_errors.failed(topic, reason)
            self._log.warning("message dropped", topic=topic, cause=cause, reason=reason)
            if on_delivery is not None:
                on_delivery(Undelivered(reason, final=cause == "too_large"))
        self.poll()

    def poll(self, timeout_seconds: float = 0.0) -> None:
        """Serve acknowledgements; call it regularly while nothing is sent."""
        client = self._client
        try:
            client.poll(timeout_seconds)
        except KafkaException as error:
            self._replace_client(client, error)

    def flush(self, timeout_seconds: float) -> int:
        """Wait until Kafka has answered for every message, or until the time-out; returns the unanswered ones."""
        client = self._client
        try:
            return int(client.flush(timeout_seconds))
        except KafkaException as error:
            self._replace_client(client, error)
        return len(self)

    def close(self, timeout_seconds: float) -> int:
        """Flush, then drop the remaining messages, which are counted as failed; returns their number."""
        outstanding = self.flush(timeout_seconds)
        if outstanding:
            self._log.warning("messages given up, because Kafka has not confirmed them", messages=outstanding)
            _discard_messages(self._client)
        return outstanding

    def ready(self) -> tuple[bool, str]:
        """Whether Kafka accepts our messages, as far as known; a readiness check for the web server.

        A topic that refuses messages fails the check until Kafka has confirmed another message of it; see
        `TopicErrors`. librdkafka reports a connection that stays away every 30 s at the latest; without messages,
        silence for longer is the only sign that it is back.
        """
        is_reported = time.monotonic() - self._reported_at_seconds <= OUTAGE_SECONDS
        trouble = (self._connection_error if is_reported else "") or self._topic_errors.text()
        return not trouble, trouble

    def __len__(self) -> int:
        """Number of messages without an answer from Kafka."""
        return len(self._client)

    def _connect(self) -> Any:
        own = {**PRODUCER_PROPERTIES, **self._properties, "client.id": self._client_id, "error_cb": self._on_error}
        return connect(self._make, self._settings, properties=own)

    def _produce(
        self, topic: str, message: Mapping[str, Any], delivered: Callable[[KafkaError | None, Message], None]
    ) -> tuple[str, str]:
        """Pass a message to librdkafka, at most twice; returns cause and reason of the last error if it refuses it."""
        cause = reason = ""
        for wait_seconds in (FULL_QUEUE_WAIT_SECONDS, 0.0):
            client = self._client
            try:
                client.produce(topic, on_delivery=delivered, **message)
            except BufferError:
                cause, reason = "queue_full", "the queue towards Kafka is full; is Kafka reachable and quick enough?"
                self.poll(wait_seconds)
            except KafkaException as error:
                refusal: KafkaError = error.args[0]
                too_large = refusal.code() == KafkaError.MSG_SIZE_TOO_LARGE
                cause, reason = ("too_large" if too_large else "refused"), refusal.str()
                if not _is_fatal(refusal):
                    break
                self._replace_client(client, error)
            else:
                return "", ""
        return cause, reason

    def _replace_client(self, broken: Any, error: KafkaException) -> None:
        """Replace a client that accepts no more messages, unless another thread has done so already.

        Raises:
            KafkaException: The error is not fatal.
        """
        reason: KafkaError = error.args[0]
        if not _is_fatal(reason):
            raise error
        with self._lock:
            if self._client is not broken:
                return
            self._log.error("producer restarted", reason=reason.str(), lost=len(broken))
            self._client = self._connect()
        _discard_messages(broken)

    def _count_answer(self, topic: str, error: KafkaError | None) -> None:
        if error is None:
            self._connection_error = self._access_error = ""
            self._connection.clear()
            self._topic_errors.confirmed(topic)
            self._count(topic, "sent")
            self._count(topic, "acknowledged")
            return
        if error.code() in _PERMANENT:
            self._count(topic, "refused")
        elif error.code() > 0:  # librdkafka's own errors are negative: Kafka has not answered
            self._count(topic, "sent")
        self._count(topic, "failed")
        if error.code() not in _PURGED:  # `close` and `_replace_client` log their number
            self._topic_errors.failed(topic, error.str())
            self._log.warning("message not delivered", topic=topic, reason=error.str())

    def _on_error(self, error: KafkaError) -> None:
        self._connection.note(error)
        self._reported_at_seconds = time.monotonic()
        code = error.code()
        if code == KafkaError._AUTHENTICATION:  # noqa: SLF001 - how librdkafka names its local errors
            self._connection_error = self._access_error = f"Kafka refuses our credentials: {error.str()}"
        elif code == KafkaError._SSL:  # noqa: SLF001 - as above
            self._connection_error = self._access_error = f"no TLS connection to Kafka: {error.str()}"
        elif code == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - as above
            self._connection_error = self._access_error or f"no broker of {self._settings.bootstrap_servers} answers"
            self._announce_outage()

    def _announce_outage(self) -> None:
        """Log once an outage that no broker answers; librdkafka reports it again at each try, a second apart at most.

        Each service has one producer, so each process says it once.
        """
        now_seconds = time.monotonic()
        if now_seconds - self._down_at_seconds > OUTAGE_SECONDS:
            reason, remedy = self._connection.summary()
            brokers = self._settings.bootstrap_servers
            self._log.warning("waiting for Kafka", brokers=brokers, reason=reason, remedy=remedy)
        self._down_at_seconds = now_seconds

    def _create_counters(self, topic: str) -> None:
        if topic in self._known:
            return
        self._known.add(topic)
        for outcome in OUTCOMES:
            self._messages.labels(topic, outcome)
        for cause in CAUSES:
            self._drops.labels(topic, cause)

    def _count(self, topic: str, outcome: str) -> None:
        self._messages.labels(topic, outcome).inc()
        with self._lock:
            setattr(self, outcome, getattr(self, outcome) + 1)


def _is_fatal(error: KafkaError) -> bool:
    """Whether a client accepts no more messages; `produce` gives the code without the mark, `poll` the mark."""
    return error.fatal() or error.code() == KafkaError._FATAL  # noqa: SLF001 - librdkafka's local error


def _discard_messages(client: Any) -> None:
    """Drop a client's messages, and have each reported."""
    client.purge()
    for _ in range(2):  # the first call raises a fatal error that was not served yet, before all are reported
        with contextlib.suppress(KafkaException):
            client.flush(1.0)
            return
