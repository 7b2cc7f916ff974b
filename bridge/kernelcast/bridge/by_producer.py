"""A counter with the labels job and instance, and perhaps one more, in a bounded number of series.

`Instruments` counts identity conflicts and points in the future with it. Producers come from messages, so
without a bound a fleet of short-lived jobs would fill the registry.
"""

import time
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry

from kernelcast.bridge.tables.producers import OTHERS
from kernelcast.runtime.instruments import counter
from kernelcast.wire.catalogue import Metric

MAX_PRODUCERS: Final = 100
"""Producers with series of their own; 101 with `other`, so some hundred lines of the own metrics."""
IDLE_SECONDS: Final = 3600.0
"""A producer without a new count for this long loses its series to another one."""

Name = tuple[str, str]
"""Job and instance."""


class CountedByProducer:
    """A counter by job, instance and perhaps a label. Only the consuming thread counts; any thread may scrape it.

    At most `MAX_PRODUCERS` producers have series of their own; all others count as `other`. So the counter has at most
    `(MAX_PRODUCERS + 1) * len(kinds)` series.
    """

    def __init__(
        self,
        row: Metric,
        kinds: Iterable[str],
        registry: CollectorRegistry,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Count by the values of the third label, `kinds`; one empty kind if there is no such label.

        Invariant: `_counted_seconds` is in the order of the last counts, so its first item is the idlest producer.
        """
        self._counter, self._monotonic = counter(row, registry), monotonic
        self._kinds = tuple(kinds)
        self._counted_seconds: dict[Name, float] = {}
        for kind in self._kinds:
            self._counter.labels(*_labels(OTHERS, kind))

    def count(self, producer: Name, kind: str, count: int) -> None:
        """Add to a producer's count."""
        if count:
            self._counter.labels(*_labels(self._counted_as(producer), kind)).inc(count)

    def _counted_as(self, producer: Name) -> Name:
        now_seconds = self._monotonic()
        known = self._counted_seconds
        if known.pop(producer, None) is None and len(known) >= MAX_PRODUCERS and not self._removed_idle(now_seconds):
            return OTHERS
        if producer != OTHERS:
            known[producer] = now_seconds  # at the end: the first is the one without a new count for longest
        return producer

    def _removed_idle(self, now_seconds: float) -> bool:
        oldest = next(iter(self._counted_seconds))
        if now_seconds - self._counted_seconds[oldest] < IDLE_SECONDS:
            return False
        del self._counted_seconds[oldest]
        for kind in self._kinds:
            self._counter.remove(*_labels(oldest, kind))
        return True


def _labels(producer: Name, kind: str) -> tuple[str, ...]:
    return (*producer, kind) if kind else producer
