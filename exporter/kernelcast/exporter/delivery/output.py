"""Output to Kafka by the settings: a producer, and a backlog on disk between it and the publisher.

`assembly.py` opens it. The publisher and the outcome relay send through `sender`, dead letters through `producer`.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from kernelcast.exporter.delivery.publish import SERVICE_NAME
from kernelcast.exporter.delivery.spool import DiskSpool, SpoolBacklog
from kernelcast.exporter.delivery.spool.backlog import ENDLESS, SpoolLimits
from kernelcast.exporter.delivery.spool.counts import SpoolCounts
from kernelcast.exporter.delivery.spool.pump import Pump
from kernelcast.exporter.settings import ExporterSettings, SpoolSettings
from kernelcast.runtime.kafka.clients import ConfirmingSender
from kernelcast.runtime.kafka.producer import DeliveryListener, Producer
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.topics import DEADLETTER, DEVICE, KERNELS, OUTCOMES

FLUSH_SECONDS: Final = 10.0
"""Time that a stop waits for Kafka; remaining messages are on disk, or are published again after the next start."""
SPOOLED: Final = (DEVICE.name, KERNELS.name, OUTCOMES.name)
"""Topics whose messages are kept until Kafka confirms them; a dead letter may be lost."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KafkaOutput:
    """The producer, and the spool before it.

    Attributes:
        producer: Producer for messages that may be lost; None if Kafka is switched off.
        sender: Sender for messages that may not be lost: a backlog, or the producer without a spool.
    """

    producer: Producer | None
    sender: ConfirmingSender


class Unsent:
    """Sender that drops everything, for nodes that only expose `/metrics`."""

    def send(
        self,
        topic: str,  # noqa: ARG002  the protocol's
        *,
        key: bytes | None,  # noqa: ARG002  the protocol's
        value: bytes | None,  # noqa: ARG002  the protocol's
        on_delivery: DeliveryListener | None = None,
    ) -> None:
        """Drop the message: Kafka is switched off, and sending it again would change nothing."""
        if on_delivery is not None:
            on_delivery(None)


@contextmanager
def kafka_output(settings: ExporterSettings, hostname: str, registry: CollectorRegistry) -> Iterator[KafkaOutput]:
    """Open the output to Kafka for the duration of a block.

    Raises:
        ConfigurationError: librdkafka refuses a property, or the spool's directory cannot be used.
    """
    if settings.to_kafka == "off":
        yield KafkaOutput(None, Unsent())
        return
    directory = spool_directory(settings)
    if directory is None:
        producer = _producer(settings, hostname, registry, spooling=False)
        try:
            yield KafkaOutput(producer, producer)
        finally:
            if lost := producer.close(FLUSH_SECONDS):
                _log.warning("Kafka did not take the last messages", messages=lost)
        return
    spool = settings.spool
    counts = SpoolCounts(registry, spool.max_bytes)
    disk = DiskSpool(
        directory, max_bytes=spool.max_bytes, max_age_seconds=spool.max_age_seconds, on_drop=counts.drop
    ).open(SPOOLED)
    producer = _producer(settings, hostname, registry, spooling=True)
    backlog = SpoolBacklog(producer, disk, _limits(spool), counts)
    counts.show(backlog.on_disk)
    try:
        with Pump(backlog):
            yield KafkaOutput(producer, backlog)
    finally:
        if left := backlog.close(FLUSH_SECONDS):
            _log.warning("Kafka did not take the last messages; they stay on disk", messages=left, path=str(directory))


def spool_directory(settings: ExporterSettings) -> Path | None:
    """Directory of the spool; None without one."""
    directory = settings.spool.directory
    if directory is None or directory.is_absolute():
        return directory
    return None if settings.state_directory is None else settings.state_directory / directory


def _producer(settings: ExporterSettings, hostname: str, registry: CollectorRegistry, *, spooling: bool) -> Producer:
    return Producer(
        settings.kafka,
        client_id=f"{SERVICE_NAME}-{hostname}",
        registry=registry,
        topics=(*SPOOLED, DEADLETTER.name),
        properties=ENDLESS if spooling else {},
    )


def _limits(spool: SpoolSettings) -> SpoolLimits:
    return SpoolLimits(
        memory_bytes=spool.memory_bytes,
        memory_seconds=spool.memory_seconds,
        replay_bytes_per_second=spool.replay_bytes_per_second,
        jitter=lambda: random.uniform(0, spool.replay_jitter_seconds),  # noqa: S311  no secret
    )
