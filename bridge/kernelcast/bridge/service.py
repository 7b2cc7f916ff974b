"""The bridge as a whole: Kafka → store → `/metrics`, and Alertmanager → Kafka."""

import socket
import threading
from types import TracebackType
from typing import Final, Self

import structlog
from prometheus_client import CollectorRegistry
from starlette.routing import Route

from kernelcast.bridge.clock import Clock, SystemClock
from kernelcast.bridge.columns import Rules
from kernelcast.bridge.consume import Intake, Parts
from kernelcast.bridge.exposition import Exposition
from kernelcast.bridge.instruments import Instruments, sample_names
from kernelcast.bridge.settings import BridgeSettings
from kernelcast.bridge.slots import SeriesLimits
from kernelcast.bridge.store import SeriesStore
from kernelcast.bridge.warm_up import warm_up
from kernelcast.bridge.webhook import Webhook
from kernelcast.columnar import Decoder
from kernelcast.runtime.deadletter import DeadLetters
from kernelcast.runtime.kafka import Consumer, Producer
from kernelcast.runtime.web import WebServer
from kernelcast.wire.catalogue import CATALOGUE
from kernelcast.wire.errors import KernelcastError
from kernelcast.wire.topics import ALERTS, DEADLETTER

STOP_SECONDS: Final = 10.0
FLUSH_SECONDS: Final = 5.0
ENDS_ARE_TOLD: Final = {"enable.partition.eof": "true"}
"""Only so is it known that all has been read where the last offsets hold no message."""
WEBHOOK_PATH: Final = "/api/v1/alerts"


class Bridge:
    """Runs from `start()` to `stop()`; also a context manager."""

    def __init__(self, settings: BridgeSettings, *, clock: Clock | None = None) -> None:
        """Put the parts together; nothing connects yet.

        Args:
            settings: What to read and how much to hold.
            clock: Tells the time; this machine's by default.

        Raises:
            ConfigurationError: A setting that only its user can judge is wrong.
        """
        clock = clock or SystemClock()
        registry = CollectorRegistry()
        self._settings = settings
        self._log = structlog.stdlib.get_logger("bridge")
        self._instruments = Instruments(registry)
        self._instruments.lines_limit.set(settings.max_series)
        self._producer = Producer(
            settings.kafka, client_id="kernelcast-bridge", registry=registry, topics=(ALERTS.name, DEADLETTER.name)
        )
        self._consumer = Consumer(
            settings.kafka, group_id=settings.group_id, overrides=ENDS_ARE_TOLD, registry=registry
        )
        dead_letters = DeadLetters(self._producer, registry=registry)
        dead_letters.expect(*settings.topics)
        webhook = Webhook(
            self._producer,
            instruments=self._instruments,
            clock=clock,
            source=f"/kernelcast/bridge/{socket.gethostname()}",
        )
        self._store = SeriesStore(
            SeriesLimits(settings.max_series, settings.max_series_per_metric),
            rules=Rules(round(settings.future_tolerance_seconds * 1e9), round(settings.takeover_seconds * 1e3)),
            reserved=_own_names(registry),
        )
        self._intake = Intake(
            Parts(self._consumer, Decoder(), self._store, dead_letters, self._instruments, clock),
            ttl_seconds=settings.ttl_seconds,
        )
        self._web = WebServer(
            settings.web,
            title="kernelcast bridge",
            metrics=Exposition(self._store, registry, observe=self._instruments.scraped).answer,
            routes=[Route(WEBHOOK_PATH, webhook.answer, methods=["POST"])] if settings.webhook else [],
            healthy=self._healthy,
            ready=self._ready,
        )
        self._web.measure(registry)
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._failure = ""
        self._thread = threading.Thread(target=self._consume, name="consume", daemon=True)

    @property
    def url(self) -> str:
        """Where it answers, once started."""
        return self._web.url

    def start(self) -> Self:
        """Answer HTTP, then compile, then join the group.

        Raises:
            ConfigurationError: The address cannot be bound.
        """
        self._web.start()
        self._thread.start()
        return self

    def wait(self, timeout_seconds: float) -> None:
        """Wait for the consumer's end, at most so long.

        Raises:
            KernelcastError: It has ended without being told to.
        """
        if self._ended.wait(timeout_seconds) and not self._stopping.is_set():
            raise KernelcastError(f"the consumer ended: {self._failure}; the bridge must be started again")

    def stop(self) -> None:
        """Leave the group, finish open requests, flush what is on its way to Kafka."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        self._web.stop()
        self._producer.close(FLUSH_SECONDS)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _consume(self) -> None:
        try:
            warm_up()
            self._consumer.subscribe(self._settings.topics, self._intake)
            self._log.info("reading", topics=list(self._settings.topics), group=self._settings.group_id)
            while not self._stopping.is_set():
                self._intake.step()
                self._producer.poll()
            self._consumer.close()
        except Exception as error:  # noqa: BLE001  whatever it is, the process must end and say so
            self._failure = f"{type(error).__name__}: {error}"
            self._log.exception("the consumer failed")
        finally:
            self._ended.set()

    def _healthy(self) -> tuple[bool, str]:
        if self._ended.is_set() and not self._stopping.is_set():
            return False, f"the consumer ended: {self._failure}"
        return True, ""

    def _ready(self) -> tuple[bool, str]:
        healthy, reason = self._healthy()
        return self._intake.ownership.readiness() if healthy else (False, reason)


def _own_names(registry: CollectorRegistry) -> frozenset[str]:
    """Names that no series from Kafka may have: those of this process, and those of every daemon about itself."""
    catalogued = {row.prometheus_name for row in CATALOGUE if not row.otlp_name}
    return sample_names(registry) | catalogued
