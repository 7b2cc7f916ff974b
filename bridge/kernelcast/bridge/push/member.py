"""One consumer of a destination: its thread, started over when it fails."""

import random
import threading
from dataclasses import dataclass
from typing import Final

import structlog

from kernelcast.bridge.clock import Clock
from kernelcast.bridge.push.backlog import PushBacklog
from kernelcast.bridge.push.backoff import Backoff
from kernelcast.bridge.push.delivery import Delivery, DeliveryServices
from kernelcast.bridge.push.instruments import DestinationMetrics
from kernelcast.bridge.push.otlp import OtlpSender, PayloadConverter
from kernelcast.bridge.push.pusher import Pusher, Stages
from kernelcast.bridge.push.reading import ReaderSettings
from kernelcast.bridge.push.receiver import Receiver
from kernelcast.bridge.push.remote_write.conversion import Conversion
from kernelcast.bridge.push.remote_write.requests import WriteSender
from kernelcast.bridge.push.settings import PushSettings
from kernelcast.bridge.push.warm_up import warm_up
from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.settings.service import KafkaSettings

RESTART_SECONDS: Final = 5.0
PROPERTIES: Final = {
    # Kafka reports the end of a partition, so that markers of transactions do not look like a lag.
    "enable.partition.eof": "true",
    # What librdkafka fetches ahead; the rest of the backlog stays in Kafka.
    "queued.max.messages.kbytes": "16384",
}


@dataclass(frozen=True, slots=True)
class Duty:
    """The task of a member.

    Attributes:
        settings: The destination.
        kafka: Settings of the Kafka with its backlog.
        reading: Topics and formats.
        metrics: The destination's metrics.
        clock: The clock.
    """

    settings: PushSettings
    kafka: KafkaSettings
    reading: ReaderSettings
    metrics: DestinationMetrics
    clock: Clock


class PushMember:
    """Reads and sends from `start()` to `stop()`."""

    def __init__(self, duty: Duty, number: int) -> None:
        """Put the parts together; nothing connects yet.

        Args:
            duty: What to do.
            number: Which member of the destination it is.

        Raises:
            ConfigurationError: A certificate cannot be used.
        """
        self._duty = duty
        self._number = number
        self._receiver = Receiver(duty.settings, clock=duty.clock)
        self._stopping = threading.Event()
        self._pusher: Pusher | None = None
        self._failure = ""
        self._log = structlog.stdlib.get_logger("bridge.push")
        self._thread = threading.Thread(target=self._run, name=f"push-{duty.settings.name}-{number}", daemon=True)

    def start(self) -> None:
        """Begin, in the background."""
        self._thread.start()

    def stop(self) -> None:
        """Ask to come to an end."""
        self._stopping.set()

    def join(self, timeout_seconds: float) -> None:
        """Wait for the thread's end, within a time limit."""
        if self._thread.is_alive():
            self._thread.join(max(0.0, timeout_seconds))

    @property
    def joined(self) -> bool:
        """Whether the group has assigned partitions, none included."""
        return self._pusher is not None and self._pusher.stages.backlog.joined

    @property
    def trouble(self) -> str:
        """The last error; empty without one."""
        if self._pusher is None:
            return self._failure
        return self._failure or self._pusher.stages.delivery.trouble

    @property
    def age_seconds(self) -> float:
        """Age of the oldest message that waits to be acknowledged."""
        return self._pusher.stages.backlog.age_seconds() if self._pusher is not None else 0.0

    @property
    def lag(self) -> int:
        """Messages that wait in its partitions."""
        return self._pusher.stages.backlog.lag() if self._pusher is not None else 0

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._work()
            except Exception as error:  # noqa: BLE001  whatever it is, scraping and the other destinations go on
                self._failure = f"{type(error).__name__}: {error}"
                self._duty.metrics.restarted()
                self._log.exception("pushing failed and starts over", destination=self._duty.settings.name)
                self._stopping.wait(RESTART_SECONDS)
        self._receiver.close()

    def _work(self) -> None:
        """Read and send until stopped."""
        duty, settings = self._duty, self._duty.settings
        warm_up()
        consumer = Consumer(duty.kafka, group_id=settings.group, overrides=PROPERTIES)
        try:
            backlog = PushBacklog(consumer, duty.metrics, duty.clock, start=settings.start)
            self._pusher = Pusher(self._stages(backlog), settings, duty.metrics, self._stopping.is_set)
            topics = settings.topics or duty.reading.topics
            consumer.subscribe(topics, backlog)
            self._log.info("pushing", destination=settings.name, topics=list(topics), group=settings.group)
            while not self._stopping.is_set():
                self._pusher.step()
                self._failure = ""
            backlog.close()
        finally:
            consumer.close()

    def _stages(self, backlog: PushBacklog) -> Stages:
        duty = self._duty
        surroundings = DeliveryServices(
            duty.metrics,
            Backoff(random.random),
            duty.clock,
            lambda seconds: backlog.hold(seconds, stopping=self._stopping.is_set),
        )
        if duty.settings.kind == "otlp":
            passage = PayloadConverter(duty.settings, duty.metrics, duty.reading)
            send_otlp = OtlpSender(self._receiver, duty.settings).send
            return Stages(backlog, passage.payloads, Delivery(send_otlp, surroundings))
        conversion = Conversion(duty.settings, duty.metrics, duty.reading)
        write = WriteSender(self._receiver, duty.settings).send
        return Stages(backlog, conversion.payloads, Delivery(write, surroundings))
