"""One member of a destination's consumer group: its thread, which is started over when it fails."""

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
"""Pause after a failure, so that a permanent one does not fill the log."""
PROPERTIES: Final = {
    # Kafka reports the end of a partition, so that markers of transactions do not look like a lag.
    "enable.partition.eof": "true",
    # What librdkafka fetches ahead; the rest of the backlog stays in Kafka.
    "queued.max.messages.kbytes": "16384",
}


@dataclass(frozen=True, slots=True)
class MemberTask:
    """The parts that all members of a destination share.

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
    """Reads and sends from `start()` to `stop()`; its properties may be read on any thread."""

    def __init__(self, task: MemberTask, number: int) -> None:
        """Put the parts together; nothing connects yet.

        Args:
            task: What to do.
            number: Which member of the destination it is.

        Raises:
            ConfigurationError: A certificate cannot be used.
        """
        self._task = task
        self._number = number
        self._receiver = Receiver(task.settings, clock=task.clock)
        self._stopping = threading.Event()
        self._pusher: Pusher | None = None
        self._failure = ""
        self._log = structlog.stdlib.get_logger("bridge.push")
        self._thread = threading.Thread(target=self._run, name=f"push-{task.settings.name}-{number}", daemon=True)

    def start(self) -> None:
        """Begin, in the background."""
        self._thread.start()

    def stop(self) -> None:
        """Tell the thread to end; returns at once."""
        self._stopping.set()

    def join(self, timeout_seconds: float) -> None:
        """Wait for the thread's end, within a time limit."""
        if self._thread.is_alive():
            self._thread.join(max(0.0, timeout_seconds))

    @property
    def joined(self) -> bool:
        """Whether the group has assigned partitions, none included; after a failure, as before it."""
        return self._pusher is not None and self._pusher.stages.backlog.joined

    @property
    def last_error(self) -> str:
        """The last error; empty without one."""
        if self._pusher is None:
            return self._failure
        return self._failure or self._pusher.stages.delivery.last_error

    @property
    def age_seconds(self) -> float:
        """Age of the oldest message that is read and not acknowledged; after a failure it goes on rising."""
        return self._pusher.stages.backlog.age_seconds() if self._pusher is not None else 0.0

    @property
    def lag(self) -> int:
        """Messages that wait in its partitions; after a failure, as before it."""
        return self._pusher.stages.backlog.lag() if self._pusher is not None else 0

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._run_consumer()
            except Exception as error:  # noqa: BLE001  whatever it is, scraping and the other destinations go on
                self._failure = f"{type(error).__name__}: {error}"
                self._task.metrics.restarted()
                self._log.exception("pushing failed and starts over", destination=self._task.settings.name)
                self._stopping.wait(RESTART_SECONDS)
        self._receiver.close()

    def _run_consumer(self) -> None:
        """Read and send until stopped."""
        task, settings = self._task, self._task.settings
        warm_up()
        consumer = Consumer(task.kafka, group_id=settings.group, overrides=PROPERTIES)
        try:
            backlog = PushBacklog(consumer, task.metrics, task.clock, start=settings.start)
            self._pusher = Pusher(self._stages(backlog), settings, task.metrics, self._stopping.is_set)
            topics = settings.topics or task.reading.topics
            consumer.subscribe(topics, backlog)
            self._log.info("pushing", destination=settings.name, topics=list(topics), group=settings.group)
            while not self._stopping.is_set():
                self._pusher.step()
                self._failure = ""
            backlog.close()
        finally:
            consumer.close()

    def _stages(self, backlog: PushBacklog) -> Stages:
        task = self._task
        services = DeliveryServices(
            task.metrics,
            Backoff(random.random),
            task.clock,
            lambda seconds: backlog.wait(seconds, stopping=self._stopping.is_set),
        )
        if task.settings.kind == "otlp":
            converter = PayloadConverter(task.settings, task.metrics, task.reading)
            send_otlp = OtlpSender(self._receiver, task.settings).send
            return Stages(backlog, converter.payloads, Delivery(send_otlp, services))
        conversion = Conversion(task.settings, task.metrics, task.reading)
        write = WriteSender(self._receiver, task.settings).send
        return Stages(backlog, conversion.payloads, Delivery(write, services))
