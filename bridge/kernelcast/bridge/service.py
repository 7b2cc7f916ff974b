"""The bridge service: Kafka → store → `/metrics`, and Alertmanager → Kafka. `command` runs one `Bridge` per process.

Threads: `consume` compiles, then reads Kafka and is the only one that changes the store; the web server's threads take
snapshots of the store; `warm-up` ends after compiling the parts that readiness does not need.
"""

import socket
import threading
from types import TracebackType
from typing import Final, Self

import structlog
from prometheus_client import CollectorRegistry
from starlette.routing import Route

from kernelcast.bridge.browser.runbooks import Runbooks
from kernelcast.bridge.browser.served import ServedPages
from kernelcast.bridge.clock import Clock, SystemClock
from kernelcast.bridge.compilation import Compilation
from kernelcast.bridge.expose import http_sd
from kernelcast.bridge.expose.exposition import Exposition
from kernelcast.bridge.expose.negotiate import Format
from kernelcast.bridge.firing import FiringAlerts
from kernelcast.bridge.first_page import StorePages
from kernelcast.bridge.inputs import Selection
from kernelcast.bridge.instruments import Instruments, sample_names
from kernelcast.bridge.intake.consume import Intake
from kernelcast.bridge.intake.discovery import Discovery
from kernelcast.bridge.intake.parts import IntakeParts, IntakePolicy
from kernelcast.bridge.modes import (
    check,
    group_of,
    max_lag_seconds_of,
    properties_of,
    session_seconds_of,
)
from kernelcast.bridge.series.occupancy import OccupancyCollector
from kernelcast.bridge.series.store import SeriesStore
from kernelcast.bridge.settings import BridgeSettings
from kernelcast.bridge.tables.columns import PointRules
from kernelcast.bridge.tables.producers import ProducerRules
from kernelcast.bridge.tables.slots import SeriesLimits
from kernelcast.bridge.translation.translate import Translator
from kernelcast.bridge.webhook import Webhook
from kernelcast.columnar import Decoder
from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.kafka.consumer_metrics import ConsumerMetrics
from kernelcast.runtime.kafka.deadletter import DeadLetters
from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.kafka.topic_names import TopicNames
from kernelcast.runtime.service_manager import ServiceManager
from kernelcast.runtime.threads import Worker
from kernelcast.runtime.web.landing import Fact, Front
from kernelcast.runtime.web.server import WebServer
from kernelcast.view.first_page import FirstPage
from kernelcast.view.html import STYLE
from kernelcast.wire.catalogue import CATALOGUE
from kernelcast.wire.catalogue.bridge import TARGET_INFO
from kernelcast.wire.errors import KernelcastError
from kernelcast.wire.topics import ALERTS, DEADLETTER

STOP_SECONDS: Final = 10.0
"""Longest wait for the consuming thread at a stop: a batch, then leaving the group."""
FLUSH_SECONDS: Final = 5.0
"""Longest wait for Kafka to acknowledge queued messages at a stop."""
IDLE_SECONDS: Final = 0.5
"""Interval between two polls for acknowledgements where nothing is read (`scraping: false`)."""
_WRITTEN: Final = (ALERTS.name, DEADLETTER.name)
"""Topics that the bridge writes to."""
WEBHOOK_PATH: Final = "/api/v1/alerts"


class Bridge:
    """The bridge's threads and server, which run from `start()` to `stop()`; also a context manager.

    The main thread calls its public methods. `_compiled`: formats whose functions are compiled; other threads read it.
    """

    def __init__(
        self, settings: BridgeSettings, *, clock: Clock | None = None, manager: ServiceManager | None = None
    ) -> None:
        """Create the components; nothing connects yet.

        Args:
            settings: Settings of the bridge.
            clock: The clock; this machine's by default.
            manager: systemd, where it started this process.

        Raises:
            ConfigurationError: Settings contradict each other.
        """
        clock = clock or SystemClock()
        manager = manager or ServiceManager()
        self._reading = manager.part("reading")
        check(settings)
        registry = CollectorRegistry()
        self._settings = settings
        self._log = structlog.stdlib.get_logger("bridge")
        self._instruments = Instruments(registry)
        self._instruments.lines_limit.set(settings.max_series)
        translator = Translator(settings.translation)
        self._producer = Producer(settings.kafka, client_id="kernelcast-bridge", registry=registry, topics=_WRITTEN)
        self._consumer = Consumer(
            settings.kafka,
            group_id=group_of(settings),
            overrides=properties_of(settings),
            metrics=ConsumerMetrics(registry),
            prompt=True,
        )
        dead_letters = DeadLetters(self._producer, registry=registry)
        dead_letters.expect(*settings.topics)
        self._store = _store(settings, registry, translator)
        registry.register(OccupancyCollector(self._store.occupancy))
        self._intake = self._made_intake(dead_letters, clock)
        self._discovery = Discovery(self._consumer, self._intake, TopicNames(settings.topics), clock=clock)
        self._compiled: frozenset[Format] = frozenset()
        self._pages = ServedPages(settings.pages)
        self._web = self._made_web(registry, clock)
        self._web.progressed = manager.part("web").progressed
        self._web.measure(registry)
        self._compilation = Compilation()
        self._only_compiles = settings.scraping  # then `stop` does not wait for the thread: it has nothing open
        self._ended = threading.Event()
        self._failure = ""
        self._thread = Worker("consume", self._consume)
        self._stopping = self._thread.stopping

    @property
    def url(self) -> str:
        """Address of the server, once started."""
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
        """Wait until the consumer ends, or until the time-out.

        Raises:
            KernelcastError: The consumer has ended without being stopped.
        """
        if self._ended.wait(timeout_seconds) and not self._stopping.is_set():
            raise KernelcastError(f"the consumer ended: {self._failure}; the bridge must be started again")

    def stop(self) -> None:
        """Leave the group, finish open requests, flush the producer."""
        self._stopping.set()
        self._compilation.stop()
        self._pages.stop()
        if not self._only_compiles:
            self._thread.stop(STOP_SECONDS)
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
            if not self._settings.scraping:
                self._wait_idly()
                return
            self._compilation.finish_what_readiness_needs()
            self._only_compiles = False
            if self._stopping.is_set():
                return
            self._compiled = frozenset({Format.TEXT, Format.OPENMETRICS})
            Worker("warm-up", self._warm_up_the_rest).start()
            grouped = self._settings.mode == "group"
            if grouped:
                self._consumer.subscribe(self._settings.topics, self._intake)
            self._log.info("reading", topics=list(self._settings.topics), mode=self._settings.mode)
            while not self._stopping.is_set():
                if not grouped:
                    self._discovery.look()
                self._intake.step()
                self._producer.poll()
                self._reading.progressed()
        except Exception as error:  # noqa: BLE001  whatever it is, the process must end and say so
            self._failure = f"{type(error).__name__}: {error}"
            self._log.exception("the consumer failed")
        finally:
            self._close_reading()

    def _close_reading(self) -> None:
        """Leave the group; the end is signalled whatever fails, so that the process ends."""
        try:
            self._consumer.close()
        except Exception as error:  # noqa: BLE001  the process must end and say so
            self._failure = self._failure or f"{type(error).__name__}: {error}"
            self._log.exception("closing the consumer failed")
        finally:
            self._ended.set()

    def _warm_up_the_rest(self) -> None:
        try:
            self._compilation.finish_the_rest()
        except Exception:  # noqa: BLE001  whatever it is, those who need it meet it again
            self._log.exception("compiling ahead failed; functions are compiled at their first call")
        finally:
            self._compiled = frozenset(Format)

    def _wait_idly(self) -> None:
        """Serve only the webhook's acknowledgements, until the bridge stops."""
        while not self._stopping.is_set():
            self._producer.poll(IDLE_SECONDS)
            self._reading.progressed()

    def _made_intake(self, dead_letters: DeadLetters, clock: Clock) -> Intake:
        settings = self._settings
        return Intake(
            IntakeParts(
                self._consumer,
                Selection(Decoder(), settings.formats),
                self._store,
                dead_letters,
                self._instruments,
                clock,
            ),
            IntakePolicy(
                settings.ttl_seconds,
                max_lag_seconds_of(settings),
                grouped=settings.mode == "group",
                session_seconds=session_seconds_of(settings),
                topics=TopicNames(settings.topics),
                tolerance_ns=round(settings.future_tolerance_seconds * 1e9),
            ),
        )

    def _made_web(self, registry: CollectorRegistry, clock: Clock) -> WebServer:
        settings = self._settings
        firing = FiringAlerts(clock)
        webhook = Webhook(
            self._producer,
            instruments=self._instruments,
            clock=clock,
            source=f"/kernelcast/bridge/{socket.gethostname()}",
            firing=firing,
        )
        front = Front(FirstPage(StorePages(self._store, self._unknown).read, firing.now).body, STYLE)
        exposition = Exposition(
            self._store,
            registry,
            observe=self._intake.freshness.scraped,
            created=settings.created_lines,
            compiled=lambda format_: format_ in self._compiled,
            hidden=self._hidden,
        )
        return WebServer(
            settings.web,
            title="bridge",
            metrics=exposition.answer,
            routes=[
                Route(http_sd.PATH, http_sd.discovery(settings.advertised_address)),
                *(webhook.routes(WEBHOOK_PATH) if settings.webhook else []),
                *self._pages.routes(),
                *Runbooks().routes(),
            ],
            healthy=self._healthy,
            ready=self.readiness,
            facts=self._facts,
            front=front if settings.scraping else Front(),
        )

    def _healthy(self) -> tuple[bool, str]:
        if self._ended.is_set() and not self._stopping.is_set():
            return False, f"the consumer ended: {self._failure}"
        return True, ""

    def readiness(self) -> tuple[bool, str]:
        """Return whether the bridge is of use; if not, the reason."""
        healthy, reason = self._healthy()
        if not healthy:
            return False, reason
        if not self._settings.scraping:
            return True, ""
        if not self._compiled:
            return False, "it is compiling; a start without compiled code on disk takes a minute of a core"
        return self._intake.readiness()

    def _facts(self) -> list[Fact]:
        """Return the lines of the landing page."""
        if not self._settings.scraping:
            return [Fact("Series", "none: bridge.scraping is false")]
        return [Fact("Lines on /metrics", f"{self._store.lines:,}")] if self._compiled else []

    def _unknown(self) -> str:
        """Return the reason why the store's series must not be shown now; empty where they may be."""
        if not self._compiled:
            return "not known yet: the bridge is compiling"
        return "not known: partitions may belong to another bridge now" if self._hidden() else ""

    def _hidden(self) -> bool:
        """Whether the series from Kafka must be hidden; `kernelcast_bridge_ready` on the same page is 0 then."""
        doubtful = self._intake.membership.doubtful
        if doubtful:
            self._instruments.ready.set(0)
        return doubtful


def _store(settings: BridgeSettings, registry: CollectorRegistry, translator: Translator) -> SeriesStore:
    return SeriesStore(
        SeriesLimits(settings.max_series, settings.max_series_per_metric, settings.max_series_per_producer),
        rules=_rules(settings),
        reserved=_own_names(registry),
        translator=translator,
        producers=ProducerRules(settings.max_producers, round(settings.ttl_seconds * 1e3)),
    )


def _rules(settings: BridgeSettings) -> PointRules:
    """Make the store's rules; a series whose interval is not known yet stays one time-to-live."""
    return PointRules(
        takeover_ms=round(settings.takeover_seconds * 1e3),
        unlearned_ms=round(settings.ttl_seconds * 1e3 / settings.missed_intervals),
        missed_intervals=settings.missed_intervals,
        floor_ms=round(settings.ttl_floor_seconds * 1e3),
    )


def _own_names(registry: CollectorRegistry) -> frozenset[str]:
    """Return the names that no series from Kafka may have: those of the daemons' own metrics.

    `target_info` is not reserved: series that a Prometheus has written to Kafka include theirs.
    """
    catalogued = {row.prometheus_name for row in CATALOGUE if not row.otlp_name}
    return (sample_names(registry) | catalogued) - {TARGET_INFO.prometheus_name}
