"""The node daemon: takes the figures of all sources at each deadline, until a stop is requested."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kernelcast.exporter.exposition import IntervalExposition
from kernelcast.exporter.instruments import Instruments
from kernelcast.exporter.pipeline import Pipeline, Tick
from kernelcast.exporter.schedule import Deadlines
from kernelcast.exporter.state import StateFile
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.logging import get_logger
from kernelcast.runtime.service_manager import ServiceManager
from kernelcast.runtime.web.landing import Fact, ago

STUCK_INTERVALS: Final = 5
STUCK_SECONDS: Final = 30.0
"""The daemon is unhealthy if no interval was completed for 30 s, or for five intervals where that is longer."""

ReadyCheck = Callable[[], tuple[bool, str]]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DaemonParts:
    """The parts of the daemon's loop.

    Attributes:
        pipeline: Pipeline from the sources to Kafka.
        aggregator: The pipeline's aggregator.
        exposition: Exposes each interval on `/metrics`.
        counts: The daemon's own metrics.
        state: File with the aggregator's totals, which the pipeline saves; None where they are not kept.
        kafka_ready: Returns whether Kafka accepts our messages.
        after: Called after each complete interval, to update further metrics.
        uses_kafka: Whether anything is written to Kafka.
    """

    pipeline: Pipeline
    aggregator: Aggregator
    exposition: IntervalExposition
    counts: Instruments
    state: StateFile | None
    kafka_ready: ReadyCheck
    after: Callable[[], None] = lambda: None
    uses_kafka: bool = True


class Daemon:
    """The daemon's loop. The main thread runs it; the web server's threads call `healthy`, `ready` and `facts`.

    Args:
        parts: The parts.
        interval_seconds: Time between two deadlines.
        clock: Unix nanoseconds.
        monotonic: Monotonic seconds.
        phase: Position of the deadlines in each interval; see `Deadlines`.
        manager: Notified of the loop's progress and of the daemon's state.
    """

    def __init__(
        self,
        parts: DaemonParts,
        *,
        interval_seconds: float,
        clock: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
        phase: float | None = None,
        manager: ServiceManager | None = None,
    ) -> None:
        self._manager = manager or ServiceManager()
        self._loop = self._manager.part("interval")
        self._parts = parts
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._monotonic = monotonic
        self._schedule = Deadlines(interval_seconds, clock=monotonic, phase=phase)
        self._completed_at: float | None = None
        self._started_at = monotonic()
        self._last: Tick | None = None
        self._trouble = "the first interval is not complete yet"

    def run(self, shutdown: Shutdown) -> None:
        """Sample at each deadline, and once more after the request to stop, so that nothing is left unreported."""
        while not shutdown.requested:
            shutdown.reload_if_asked()
            if not self._wait(shutdown):
                self.interval()
        self._manager.stopping()
        self.interval()
        if self._parts.state is not None:
            self._parts.state.save(self._parts.aggregator, final=True)

    def _wait(self, shutdown: Shutdown) -> bool:
        """Wait for the next deadline; True if a stop was requested. Reports progress, once one interval is complete."""
        seconds = self._schedule.wait_seconds()
        if self._completed_at is None:
            return shutdown.wait(seconds)
        self._loop.progressed()
        self._manager.report(self.ready)
        return self._loop.wait(shutdown.wait, seconds)

    def interval(self) -> None:
        """Sample, publish and expose; an error in the pipeline costs this interval, but does not end the daemon."""
        parts, began = self._parts, self._monotonic()
        lateness = self._schedule.begin()
        parts.counts.ticks_missed.inc(lateness.missed)
        now_ns = self._clock()
        try:
            tick = parts.pipeline.tick(now_ns)
        except Exception as error:  # noqa: BLE001  one program's error must not silence the node; it is counted and logged
            self._trouble = str(error) or type(error).__name__
            parts.counts.tick_errors.inc()
            _log.error("interval failed", error_type=type(error).__name__, reason=str(error))
            return
        self._trouble = ""
        self._completed_at = self._monotonic()
        self._last = tick
        parts.exposition.show(tick)
        parts.counts.interval(tick, lateness, self._completed_at - began)
        parts.counts.aggregation(parts.aggregator)
        if parts.state is not None:
            parts.counts.state(parts.state)
        parts.after()

    def change_interval(self, interval_seconds: float) -> None:
        """Use another interval from now on; a reload calls it on the main thread."""
        self._interval_seconds = interval_seconds
        self._schedule.change(interval_seconds)

    def healthy(self) -> tuple[bool, str]:
        """Return whether the loop runs; if not, the reason."""
        limit = max(STUCK_INTERVALS * self._interval_seconds, STUCK_SECONDS)
        last = self._completed_at if self._completed_at is not None else self._started_at
        silent = self._monotonic() - last
        return silent <= limit, f"no interval was completed for {silent:.0f} s; the limit is {limit:.0f} s"

    def ready(self) -> tuple[bool, str]:
        """Return whether the last interval was complete and Kafka accepts messages; if not, the reason."""
        if self._trouble:
            return False, self._trouble
        return self._parts.kafka_ready()

    def facts(self) -> list[Fact]:
        """The landing page's lines: the last interval and its figures, and Kafka."""
        tick, completed_at = self._last, self._completed_at
        if tick is None or completed_at is None:
            return [Fact("Last interval", "none is complete yet")]
        age = self._monotonic() - completed_at
        interval = f"{ago(age)}, every {self._interval_seconds:g} s"
        facts = [Fact("Last interval", interval, wrong=not self.healthy()[0])]
        if not self._parts.uses_kafka:
            return [*facts, Fact("Points in it", f"{tick.points:,}"), Fact("Kafka", "is not used")]
        good, reason = self._parts.kafka_ready()
        return [
            *facts,
            Fact("Points sent to Kafka in it", f"{tick.points:,}"),
            Fact("Kafka", "accepts messages" if good else reason, wrong=not good),
        ]
