"""The node daemon: samples everything at each deadline, until asked to stop."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kernelcast.exporter.counts import DaemonCounts
from kernelcast.exporter.exposition import IntervalExposition
from kernelcast.exporter.pipeline import Pipeline
from kernelcast.exporter.schedule import Schedule
from kernelcast.exporter.state import StateFile
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.logging import get_logger

STUCK_INTERVALS: Final = 5
STUCK_SECONDS: Final = 30.0
"""Without an interval completed for the longer of the two the daemon is not healthy."""

ReadyCheck = Callable[[], tuple[bool, str]]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DaemonParts:
    """The parts of the daemon's loop.

    Attributes:
        pipeline: Sources to Kafka.
        aggregator: The pipeline's.
        exposition: Shows each interval on `/metrics`.
        counts: The daemon's own metrics.
        state: The pipeline's; None where no state is kept.
        kafka_ready: Whether Kafka takes what we send.
        after: Called after each interval, to show what else there is to count.
    """

    pipeline: Pipeline
    aggregator: Aggregator
    exposition: IntervalExposition
    counts: DaemonCounts
    state: StateFile | None
    kafka_ready: ReadyCheck
    after: Callable[[], None] = lambda: None


class Daemon:
    """The loop.

    Args:
        parts: The parts.
        interval_seconds: Between two deadlines.
        clock: Unix nanoseconds.
        monotonic: Monotonic seconds.
        phase: Where in each interval the deadlines lie; see `Schedule`.
    """

    def __init__(
        self,
        parts: DaemonParts,
        *,
        interval_seconds: float,
        clock: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
        phase: float | None = None,
    ) -> None:
        self._parts = parts
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._monotonic = monotonic
        self._schedule = Schedule(interval_seconds, clock=monotonic, phase=phase)
        self._completed_at: float | None = None
        self._started_at = monotonic()
        self._trouble = "the first interval is not complete yet"

    def run(self, shutdown: Shutdown) -> None:
        """Sample at each deadline, and once more after the request to stop, so that nothing is left unreported."""
        while not shutdown.requested:
            shutdown.reload_if_asked()
            if not shutdown.wait(self._schedule.wait_seconds()):
                self.interval()
        self.interval()
        if self._parts.state is not None:
            self._parts.state.save(self._parts.aggregator, final=True)

    def interval(self) -> None:
        """Sample, publish and show; an input that fails costs this interval, not the daemon."""
        parts, began = self._parts, self._monotonic()
        lateness = self._schedule.begin()
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
        parts.exposition.show(tick)
        parts.counts.interval(tick, lateness, self._completed_at - began)
        parts.counts.aggregation(parts.aggregator)
        if parts.state is not None:
            parts.counts.state(parts.state)
        parts.after()

    def change_interval(self, interval_seconds: float) -> None:
        """Go on with another interval."""
        self._interval_seconds = interval_seconds
        self._schedule.change(interval_seconds)

    def healthy(self) -> tuple[bool, str]:
        """Whether the loop turns."""
        limit = max(STUCK_INTERVALS * self._interval_seconds, STUCK_SECONDS)
        last = self._completed_at if self._completed_at is not None else self._started_at
        silent = self._monotonic() - last
        return silent <= limit, f"no interval was completed for {silent:.0f} s; the limit is {limit:.0f} s"

    def ready(self) -> tuple[bool, str]:
        """Whether the last interval was complete, and Kafka takes it."""
        if self._trouble:
            return False, self._trouble
        return self._parts.kafka_ready()
