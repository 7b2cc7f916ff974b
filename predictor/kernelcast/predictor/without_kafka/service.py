"""The predictor without Kafka as a daemon: one thread asks Prometheus, one runs cycles; both share the engine.

`command` runs it with `--prometheus URL`.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry

from kernelcast.predictor.cycle_loop import CycleLoop
from kernelcast.predictor.engine import Engine
from kernelcast.predictor.forecasting.deep.pool import FitPool
from kernelcast.predictor.measures import Measures
from kernelcast.predictor.pages import Pages
from kernelcast.predictor.prometheus import PrometheusClient
from kernelcast.predictor.reloading import reload
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.predictor.without_kafka.answers import Answers
from kernelcast.predictor.without_kafka.measures import MeasuredClient, PrometheusMeasures
from kernelcast.predictor.without_kafka.outputs import PrometheusOutputs
from kernelcast.predictor.without_kafka.past_reader import PastReader
from kernelcast.predictor.without_kafka.remembered import Remembered
from kernelcast.predictor.without_kafka.source import Source
from kernelcast.predictor.without_kafka.start import nothing_found, on_grid, wait_for_series
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.logging import get_logger
from kernelcast.runtime.service_manager import ServiceManager
from kernelcast.runtime.threads import Worker
from kernelcast.wire.errors import ConfigurationError, PrometheusError

TICK_SECONDS: Final = 1.0
"""Longest time without a look at signals."""
PAST_EVERY_SECONDS: Final = 60.0
"""Time between two looks for series without a past."""
EXPIRE_EVERY_SECONDS: Final = 60.0
AGAIN_SECONDS: Final = 5.0
"""Time after a failed query, unless Prometheus names another."""
LONGEST_AGAIN_SECONDS: Final = 300.0
SILENT_INTERVALS: Final = 10
"""Intervals without an answer after which the predictor is not ready."""
STOP_SECONDS: Final = 5.0
_TROUBLES: Final = (PrometheusError, ConfigurationError)
"""A file of credentials may be away for a moment."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Outage:
    """A time without an answer to the query for the newest intervals.

    Attributes:
        began_seconds: Time of the first failure, Unix.
        reason: That of the last failure.
    """

    began_seconds: float
    reason: str


class _StopRequestedError(Exception):
    """Leaves a reading of the past that would take minutes."""


class PrometheusPredictor:
    """The daemon; `run` blocks until asked to stop.

    Attributes:
        registry: Its own metrics, its predictions and its findings.
    """

    def __init__(
        self,
        settings: PredictorSettings,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
        read: Callable[[], PredictorSettings] | None = None,
        manager: ServiceManager | None = None,
    ) -> None:
        """Prepare to run.

        Args:
            settings: As they are at the start, with the grid of the source (`on_grid`).
            clock_ns: The time of this machine.
            read: Reads the settings again on SIGHUP; None if they never change.
            manager: systemd, where it started this process.
        """
        self._settings, self._read, self._clock_ns = settings, read, clock_ns
        self._manager = manager or ServiceManager()
        self._reading, self._cycling = self._manager.part("reading"), self._manager.part("cycles")
        self.registry = CollectorRegistry()
        self._source_measures = PrometheusMeasures(self.registry)
        self._pool = FitPool(settings.deep.workers) if settings.deep.enabled else None
        self._engine = Engine(settings, clock_ns=clock_ns, pool=self._pool)
        measures = Measures(self.registry)
        self._source = Source(
            settings, self._engine, self._reader, measures=self._source_measures, clock_seconds=self._seconds
        )
        admission = self._source.admission
        self._outputs = PrometheusOutputs(settings, self._engine, admission, self.registry, clock_ns=clock_ns)
        self._outputs.remembered = Remembered(
            self._reader(1), self._engine, admission, self._outputs.findings.alarms, clock_seconds=self._seconds
        )
        self._cycles = CycleLoop(settings, self._engine, self._outputs, measures=measures)
        self._past = self._new_past()
        self._ending = threading.Event()
        self._shutdown = Shutdown()
        self._outage: Outage | None = None
        self._past_due = self._expire_due = 0.0
        self.web = Pages(settings, self.registry, self._engine, self._cycles).server(
            self._ready, Answers(self._outputs.findings).routes
        )
        self.web.progressed = self._manager.part("web").progressed

    def run(self, shutdown: Shutdown) -> None:
        """Ask Prometheus, run cycles and serve until asked to stop."""
        self._shutdown = shutdown
        if self._read is not None:
            shutdown.on_reload(partial(reload, self._engine, self._settings, self._read))
        cycles = Worker("cycles", self._cycles.run, self._ending, self._cycling)
        with self.web:
            try:
                while not shutdown.requested and not self._poll():
                    pass
                cycles.start()
                self._read_forever()
            except _StopRequestedError:
                pass
            finally:
                self._stop(cycles)

    def _read_forever(self) -> None:
        while not self._shutdown.requested:
            self._between(0.0)
            if self._outage is None and time.monotonic() >= self._past_due:
                self._past_due = time.monotonic() + PAST_EVERY_SECONDS
                self._read_past()
            if time.monotonic() >= self._expire_due:
                self._expire_due = time.monotonic() + EXPIRE_EVERY_SECONDS
                self._source.expire()
            self._wait(min(self._source.due_seconds, TICK_SECONDS))

    def _between(self, rest_seconds: float) -> None:
        """Poll if that is due, and rest; called before each query of the past.

        Raises:
            _StopRequestedError: It is to end.
        """
        until = time.monotonic() + rest_seconds
        while True:
            if self._shutdown.requested:
                raise _StopRequestedError
            self._shutdown.reload_if_asked()
            if self._source.due_seconds <= 0.0:
                self._poll()
            self._manager.report(self._ready)
            self._reading.progressed()
            left = until - time.monotonic()
            if left <= 0.0:
                return
            self._wait(min(left, TICK_SECONDS))

    def _poll(self) -> bool:
        """Read the newest intervals; returns whether Prometheus has answered."""
        try:
            if self._source.poll():
                self._past = self._new_past()  # what was left out may be there as blocks
        except _TROUBLES as error:
            if self._outage is None:
                _log.warning("intervals not read from Prometheus", reason=str(error), again_seconds=_again(error))
            began_seconds = self._seconds() if self._outage is None else self._outage.began_seconds
            self._outage = Outage(began_seconds, str(error))
            self._wait(_again(error))
            return False
        if self._outage is not None:
            after_seconds = round(self._seconds() - self._outage.began_seconds)
            self._outage = None
            _log.info("intervals read again from Prometheus", after_seconds=after_seconds)
        return True

    def _read_past(self) -> None:
        try:
            self._past.run(self._seconds())
        except _TROUBLES as error:
            _log.warning("past not read from Prometheus", reason=str(error), again_seconds=PAST_EVERY_SECONDS)
            self._wait(_again(error))

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._shutdown.requested and (left := until - time.monotonic()) > 0.0:
            self._shutdown.wait(min(left, TICK_SECONDS))
            self._reading.progressed()

    def _ready(self) -> tuple[bool, str]:
        read_until = self._source.read_until
        if read_until is None:
            return False, self._outage.reason if self._outage else "no interval was read from Prometheus yet"
        silent = self._seconds() - (read_until + 1) * self._settings.interval_seconds
        slow = silent > SILENT_INTERVALS * self._settings.interval_seconds + self._settings.prometheus.delay_seconds
        if self._outage is not None or slow:
            reason = self._outage.reason if self._outage is not None else "it is slow"
            return False, f"Prometheus has given no interval for {silent:.0f} s: {reason}"
        if not self._engine.windows.rows().size:
            return False, nothing_found(self._settings)
        return (True, "") if self._past.days_done else (False, "two days of the series are being read")

    def _reader(self, points: int) -> MeasuredClient:
        source = self._settings.prometheus
        client = PrometheusClient(source.url, points_per_page=points, access=source.access)
        return MeasuredClient(client, self._source_measures)

    def _new_past(self) -> PastReader:
        return PastReader(
            self._engine,
            self._source.admission,
            self._reader,
            matchers=self._settings.prometheus.matchers,
            measures=self._source_measures,
            between=self._between,
        )

    def _seconds(self) -> float:
        return self._clock_ns() / 1e9

    def _stop(self, cycles: threading.Thread) -> None:
        self._manager.stopping()
        self._ending.set()
        if self._pool is not None:
            self._pool.close(STOP_SECONDS)
        if cycles.is_alive():
            cycles.join(STOP_SECONDS)


def _again(error: Exception) -> float:
    """Time after which Prometheus is asked again, in seconds."""
    wanted = error.retry_after_seconds if isinstance(error, PrometheusError) else 0.0
    return min(max(wanted, AGAIN_SECONDS), LONGEST_AGAIN_SECONDS)


def run(read: Callable[[], PredictorSettings], shutdown: Shutdown, *, manager: ServiceManager | None = None) -> None:
    """Look at the Prometheus, then run a predictor on its series.

    Args:
        read: Reads the settings, now and on SIGHUP.
        shutdown: Ends it.
        manager: systemd, where it started this process.

    Raises:
        PrometheusError: Prometheus refuses, or is none; one that is away is awaited.
    """
    settings = read()
    source = settings.prometheus
    client = PrometheusClient(source.url, access=source.access)
    present = wait_for_series(client, settings, wait=shutdown.wait, clock_seconds=time.time)
    if present is None:
        return
    scrape_seconds = present.scrape_seconds

    def read_on_grid() -> PredictorSettings:
        return on_grid(read(), scrape_seconds)

    PrometheusPredictor(on_grid(settings, scrape_seconds), read=read_on_grid, manager=manager).run(shutdown)
