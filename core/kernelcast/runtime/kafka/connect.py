"""Makes librdkafka's clients from our settings, and converts its errors to ours.

Every client of this package is made by `connect`; `--check-config` calls `check`.
"""

import difflib
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kernelcast.runtime.kafka.connection_errors import without_timing
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.errors import BrokerError, ConfigurationError
from kernelcast.wire.topics import PARTITIONER

QUEUE_KIBIBYTES: Final = 64 * 1024
"""Size of a producer's queue in memory, which fills while Kafka is away."""

MAX_MESSAGE_BYTES: Final = 9 * 1024 * 1024
"""Above `max.message.bytes` of the largest topics (8 MiB), so that the topic's limit decides."""

_COMMON: Final = {
    # Brokers close idle connections, which is no error.
    "log.connection.close": "false",
    # Keep-alives find a broker that died without closing any.
    "socket.keepalive.enable": "true",
    # The default of Kafka's own clients. With librdkafka's 10 s a member that waits to reconnect to the dead broker
    # does not hear of its new coordinator before its session ends, and loses all partitions.
    "reconnect.backoff.max.ms": "1000",
}

PRODUCER_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **_COMMON,
        "acks": "all",
        "enable.idempotence": "true",
        "compression.type": "lz4",
        "partitioner": PARTITIONER,
        "linger.ms": "20",
        "queue.buffering.max.kbytes": str(QUEUE_KIBIBYTES),
        "message.max.bytes": str(MAX_MESSAGE_BYTES),
    }
)
CONSUMER_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **_COMMON,
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        # An end is progress, and shows that all is read where the last offsets have no message.
        "enable.partition.eof": "true",
        "auto.offset.reset": "earliest",
        # A topic that is created or extended after the service has started is found after this time, not after 5
        # minutes.
        "topic.metadata.refresh.interval.ms": "10000",
        # Live metrics: the partitions of a killed member must be read again within seconds, not after librdkafka's 45.
        # But Kafka needs 9 s to replace a broker that died; members of a group whose coordinator it was hear of no one
        # until then, and a shorter session would end for all of them at once.
        "session.timeout.ms": "15000",
        "heartbeat.interval.ms": "2000",
        # A full queue is checked again after this time; with librdkafka's 1 s a reader that catches up mostly waits.
        "fetch.queue.backoff.ms": "10",
        # Size of the queue of fetched messages, for all partitions together; four times as much is not faster.
        "queued.max.messages.kbytes": "16384",
        # A rebalance revokes only the partitions that move; the others are read without a pause.
        "partition.assignment.strategy": "cooperative-sticky",
    }
)

GROUP_PROTOCOL: Final = "group.protocol"
_DECIDED_BY_THE_BROKER: Final = ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy")
"""Properties that the broker sets with `group.protocol=consumer` (KIP-848); librdkafka refuses them then."""

_LACKING_RIGHTS: Final = (
    confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED,
    confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED,
    confluent_kafka.KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)

_FUNCTIONS: Final = ("error_cb", "stats_cb", "throttle_cb", "oauth_cb", "on_delivery", "on_commit", "logger")
_PYTHON_OBJECTS: Final = frozenset((*_FUNCTIONS, "default.topic.config", "delivery.report.only.error"))
"""Properties for which confluent_kafka takes functions, a dictionary or a boolean; it raises TypeError for a text."""

_FILES: Final = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location")
"""Properties that name a file; of one that is missing OpenSSL says `error:05880020:x509 certificate routines`."""
_USUAL: Final = frozenset(
    {
        *_FILES,
        "client.id",
        "enable.ssl.certificate.verification",
        "group.protocol",
        "sasl.kerberos.keytab",
        "sasl.kerberos.principal",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "socket.timeout.ms",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keystore.password",
        "statistics.interval.ms",
    }
)
"""Names of properties that sites set, for the remedy of a misspelt one; librdkafka does not list its own."""
_UNKNOWN: Final = re.compile(r'No such configuration property: "([^"]+)"')

Client = Callable[..., Any]
_NOT_FOR_THIS_CLIENT: Final = re.compile(r"CONFWARN .* is a (consumer|producer) property and will be ignored by this")
_FAILED: Final = re.compile(
    r"FAIL \[[^]]*\] \[[^]]*\]: (?P<broker>\S+?)/(?P<id>bootstrap|\d+): (?P<reason>.*)", re.DOTALL
)
"""librdkafka's line on a connection that failed; brokers that it only knows from `bootstrap.servers` have no number."""


def _translate(record: logging.LogRecord) -> bool:
    """Whether to log a line of librdkafka's.

    Notes on properties that do not apply to the client are dropped. A failed connection to `bootstrap.servers` is
    logged at level debug, because the client's user says it with a remedy (`ConnectionErrors`). A later one, to a
    broker of the cluster, is a warning in our words.
    """
    text = record.getMessage()
    if _NOT_FOR_THIS_CLIENT.search(text):
        return False
    if failed := _FAILED.match(text):
        if failed["id"] == "bootstrap":
            record.levelno = logging.DEBUG
        else:
            record.levelno = logging.WARNING
            reason = without_timing(failed["reason"])
            record.msg = f"no connection to broker {failed['id']} at {failed['broker']}: {reason}; check that it runs"
            record.args = ()
        record.levelname = logging.getLevelName(record.levelno)
    return _LOGGER.isEnabledFor(record.levelno)


_LOGGER: Final = logging.getLogger("kafka")
_LOGGER.addFilter(_translate)


def consumer_properties(settings: KafkaSettings, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return a consumer's properties, without our defaults that its group's protocol forbids.

    Args:
        settings: Its properties have precedence over ours, so they may choose the protocol as well.
        own: The service's properties in addition to `CONSUMER_PROPERTIES`.
    """
    properties = {**CONSUMER_PROPERTIES, **own}
    if settings.properties.get(GROUP_PROTOCOL, properties.get(GROUP_PROTOCOL, "classic")) == "consumer":
        properties = {name: value for name, value in properties.items() if name not in _DECIDED_BY_THE_BROKER}
    return properties


def connect(client: Client, settings: KafkaSettings, *, properties: Mapping[str, Any]) -> Any:
    """Create a client of confluent_kafka; it connects in the background.

    Args:
        client: The client's class.
        settings: Settings of the connection; its properties have precedence over ours.
        properties: Our properties.

    Raises:
        ConfigurationError: A property is refused; the message names it.
    """
    for name in settings.properties:
        if name in _PYTHON_OBJECTS:
            raise ConfigurationError(f"kafka.properties.{name} cannot be set in text; remove it")
        if name == "group.id":  # all consumers would share one group, also those that each read everything
            raise ConfigurationError(
                "kafka.properties.group.id is the same for all consumers; set group_id of the service"
            )
        if name in _FILES and not _is_there(settings.properties[name]):
            raise ConfigurationError(
                f"kafka.properties.{name} is {settings.properties[name]}; there is no such file that this user may "
                "read; name the file, or leave the property out"
            )
    config = {**properties, "bootstrap.servers": settings.bootstrap_servers, **settings.properties}
    callbacks = {name: call for name, call in config.items() if callable(call)}
    texts = {name: value for name, value in config.items() if name not in callbacks}
    try:
        return client({**texts, **callbacks}, logger=_LOGGER)
    except KafkaException as error:
        text = error_text(error)
        raise ConfigurationError(f"kafka.properties are refused: {text}{_remedy_of_name(text)}") from None


def _is_there(value: str) -> bool:
    """Whether a file or directory can be read; librdkafka's word `probe` has it look in the usual places."""
    return value == "probe" or os.access(value, os.R_OK)


def _remedy_of_name(refusal: str) -> str:
    """The nearest known name, where librdkafka says that it knows no such property."""
    unknown = _UNKNOWN.search(refusal)
    if unknown is None:
        return ""
    near = difflib.get_close_matches(unknown[1], _USUAL | PRODUCER_PROPERTIES.keys() | CONSUMER_PROPERTIES.keys(), n=1)
    listed = "; CONFIGURATION.md of librdkafka lists the names"
    return f"; did you mean {near[0]}?" if near else listed


def check(settings: KafkaSettings) -> None:
    """Let librdkafka check the settings of a producer, a consumer and an administrator, without connecting.

    Raises:
        ConfigurationError: It refuses one.
    """
    quiet = {"log_level": "0"}
    connect(confluent_kafka.Producer, settings, properties={**PRODUCER_PROPERTIES, **quiet})
    group = {"group.id": "kernelcast-check"}
    connect(confluent_kafka.Consumer, settings, properties=consumer_properties(settings, {**group, **quiet})).close()
    connect(AdminClient, settings, properties=quiet)


def error_text(error: KafkaException) -> str:
    """Return librdkafka's text in an exception."""
    reason = error.args[0] if error.args else error
    return str(reason.str()) if isinstance(reason, confluent_kafka.KafkaError) else str(reason)


@contextmanager
def broker_errors(doing: str, *, remedy: str = "") -> Iterator[None]:
    """Convert librdkafka's exceptions inside the block to `BrokerError`, with the action and a remedy."""
    try:
        yield
    except KafkaException as error:
        raise BrokerError(f"{doing} failed: {error_text(error)}" + (f"; {remedy}" if remedy else "")) from error


def lacks_right(error: BrokerError) -> bool:
    """Whether Kafka refused a request because the user lacks a right; a `BrokerError` of `broker_errors`."""
    cause = error.__cause__
    reason = cause.args[0] if isinstance(cause, KafkaException) and cause.args else None
    return isinstance(reason, confluent_kafka.KafkaError) and reason.code() in _LACKING_RIGHTS
