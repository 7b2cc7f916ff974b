"""Pipeline from sources through the aggregator to Kafka, one interval at a time.

The daemon, `kernelcast replay` and `kernelcast simulate` call `tick`; samples go to the publisher, and the returned
`Tick` to the daemon's `/metrics` and counters.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from kernelcast.columnar import Sample
from kernelcast.exporter.delivery.publish import SamplePublisher, Tally
from kernelcast.exporter.totals.aggregate import Aggregator, ProgramSamples
from kernelcast.exporter.totals.report import Source
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.errors import WireError

BAD_VALUES: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, WireError)
"""Errors of a program's values that passed the checks of their reader; those of a source or of Kafka are others."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Tick:
    """The result of one interval.

    Attributes:
        time_ns: Time of its samples, Unix nanoseconds.
        programs: Published samples of programs; without those that cannot be written.
        devices: Published device samples.
        points: Number of sent data points.
        done: Whether all sources have ended, as a replayed trace does; never true for a live source.
    """

    time_ns: int
    programs: tuple[ProgramSamples, ...]
    devices: tuple[Sample, ...]
    points: int
    done: bool


class Pipeline:
    """Connects sources, aggregator and publisher; one thread calls `tick` once per interval.

    Args:
        sources: Polled in this order.
        aggregator: Sums the reports of programs.
        publisher: Writes to Kafka.
        save_state: Writes the totals to disk before they are published, so that no series falls after a crash; does
            not raise. None where nothing is saved.
        relay_outcomes: Forwards the outcomes of hints since its last call to Kafka; called with the tick's time, after
            the reports: a program may have answered a hint before its first report.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        aggregator: Aggregator,
        publisher: SamplePublisher,
        *,
        save_state: Callable[[Aggregator], None] | None = None,
        relay_outcomes: Callable[[int], None] | None = None,
    ) -> None:
        self._sources = list(sources)
        self._aggregator = aggregator
        self._publisher = publisher
        self._save_state = save_state
        self._relay_outcomes = relay_outcomes

    def tick(self, now_ns: int) -> Tick:
        """Poll every source, then publish every series at `now_ns`.

        Raises:
            SourceError: A source cannot continue.
        """
        devices, done = self._poll(now_ns)
        if self._relay_outcomes is not None:
            self._relay_outcomes(now_ns)
        devices += tuple(self._aggregator.meter(devices, now_ns))
        before = self._publisher.points
        programs = tuple(self._aggregator.samples(now_ns))
        if self._save_state is not None:
            self._save_state(self._aggregator)
        published = []
        for group in programs:
            with self._isolated(group.program):
                self._publisher.kernels(group)
                published.append(group)
        for group in self._publisher.ended({(group.hostname, group.program) for group in programs}, now_ns):
            with self._isolated(group.program):
                self._publisher.kernels(group)
        self._publisher.devices(devices)
        return Tick(now_ns, tuple(published), devices, self._publisher.points - before, done)

    def tally(self) -> Tally:
        """Sums of received launches and sent messages since the start."""
        publisher, counts = self._publisher, self._aggregator.counts
        return Tally(publisher.messages, publisher.points, publisher.size_bytes, counts.launches, counts.copies)

    def close(self) -> None:
        """Close every source."""
        for source in self._sources:
            source.close()

    def _poll(self, now_ns: int) -> tuple[tuple[Sample, ...], bool]:
        devices: list[Sample] = []
        done = bool(self._sources)
        for source in self._sources:
            batch = source.poll(now_ns)
            for report in batch.reports:
                with self._isolated(report.process.program):
                    self._aggregator.report(report)
            devices.extend(batch.samples)
            done = done and batch.done
        return tuple(devices), done

    @contextmanager
    def _isolated(self, program: str) -> Iterator[None]:
        """Count and log an error of one program's values, so that it costs no other program the interval."""
        try:
            yield
        except BAD_VALUES as error:
            self._aggregator.counts.refused += 1
            _log.error("values of a program cannot be used", program=program, reason=f"{type(error).__name__}: {error}")
