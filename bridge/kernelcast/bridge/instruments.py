"""The bridge's own metrics, made from the catalogue's rows; every counter starts at 0.

`Bridge` makes one `Instruments`; the consuming thread and the threads that answer requests update it
(prometheus_client's metrics have locks), and `/metrics` shows it after the series from Kafka.
"""

import contextlib
from collections.abc import Mapping
from typing import Final

import numpy as np
from prometheus_client import CollectorRegistry, Histogram

from kernelcast.bridge.by_producer import CountedByProducer
from kernelcast.bridge.partitions.tombstones import TOMBSTONE_KINDS
from kernelcast.bridge.tables.columns import DISCARD_CAUSES, SIGNS, Int64Array
from kernelcast.bridge.tables.producers import Conflicts
from kernelcast.runtime.instruments import counter, gauge
from kernelcast.wire.catalogue import Metric
from kernelcast.wire.catalogue import bridge as rows

FRESHNESS_BOUNDS_SECONDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)
"""Bucket bounds of the age of points: from one poll to an hour of lag."""
SCRAPE_BOUNDS_SECONDS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bucket bounds of the time to encode a page: 1 ms for some series, seconds for millions."""
UNSUPPORTED: Final = "unsupported"
"""Cause of points that an input cannot express as series, such as text."""


class Instruments:
    """The bridge's own metrics.

    Attributes:
        registry: Contains them.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.messages = counter(rows.MESSAGES, registry)
        self.formats = counter(rows.FORMATS, registry)
        self.points = counter(rows.POINTS, registry)
        self.discarded = counter(rows.DISCARDED_POINTS, registry)
        self.identity_conflicts = CountedByProducer(rows.IDENTITY_CONFLICTS, SIGNS, registry)
        self.clamped = CountedByProducer(rows.CLAMPED_POINTS, ("",), registry)
        self.decode_failures = counter(rows.DECODE_FAILURES, registry)
        self.series = gauge(rows.SERIES, registry)
        self.lines = gauge(rows.LINES, registry)
        self.lines_limit = gauge(rows.LINES_LIMIT, registry)
        self.removed = counter(rows.REMOVED_SERIES, registry)
        self.tombstones = counter(rows.TOMBSTONES, registry)
        self.lag = gauge(rows.LAG, registry)
        self.lag_seconds = gauge(rows.LAG_SECONDS, registry)
        self.unkeyed = counter(rows.UNKEYED_MESSAGES, registry)
        self.skipped = counter(rows.SKIPPED_MESSAGES, registry)
        self.left = counter(rows.DEADLETTERS_LEFT, registry)
        self.offset_restarts = counter(rows.OFFSET_RESTARTS, registry)
        self.partitions = gauge(rows.PARTITIONS, registry)
        self.topic_partitions = gauge(rows.TOPIC_PARTITIONS, registry)
        self._topics: set[str] = set()
        self.rebalances = counter(rows.REBALANCES, registry)
        self.ready = gauge(rows.CAUGHT_UP, registry)
        self.kafka_outage = gauge(rows.KAFKA_OUTAGE, registry)
        self.append_time = gauge(rows.APPEND_TIME, registry)
        self.clock_ahead = gauge(rows.CLOCK_AHEAD, registry)
        self.freshness = _histogram(rows.FRESHNESS, FRESHNESS_BOUNDS_SECONDS, registry)
        self.served = _histogram(rows.SERVED, FRESHNESS_BOUNDS_SECONDS, registry)
        self.scrape_seconds = _histogram(rows.SCRAPE_DURATION, SCRAPE_BOUNDS_SECONDS, registry)
        self.scrape_bytes = gauge(rows.SCRAPE_BYTES, registry)
        self.alerts = counter(rows.ALERTS, registry)
        self._start_at_zero()

    def expect(self, topic: str) -> None:
        """Start the counters of a topic at 0, when one of its partitions is assigned."""
        self.messages.labels(topic)
        self.points.labels(topic)
        self.decode_failures.labels(topic, "DecodeError")
        self.freshness.labels(topic)
        self.served.labels(topic)
        self.unkeyed.labels(topic)
        for kind in TOMBSTONE_KINDS:
            self.tombstones.labels(topic, kind)
        self.skipped.labels(topic)
        self.offset_restarts.labels(topic)

    def part_from(self, topic: str, partition: int) -> None:
        """Remove the metrics of a partition that this bridge does not own any more."""
        for known in (self.lag, self.lag_seconds):
            with contextlib.suppress(KeyError):
                known.remove(topic, str(partition))

    def count_partitions(self, partitions: Mapping[str, int]) -> None:
        """Note the number of partitions of each topic that is read."""
        for topic in self._topics - partitions.keys():
            self.topic_partitions.remove(topic)
        for topic, count in partitions.items():
            self.topic_partitions.labels(topic).set(count)
        self._topics = set(partitions)

    def count_points(self, outcomes: Int64Array, unsupported: int) -> None:
        """Count what became of a batch of points."""
        for code, cause in DISCARD_CAUSES.items():
            if outcomes[code]:
                self.discarded.labels(cause).inc(int(outcomes[code]))
        if unsupported:
            self.discarded.labels(UNSUPPORTED).inc(unsupported)

    def count_conflicts(self, conflicts: Conflicts) -> None:
        """Count signs that live producers share an identity."""
        for producer, signs in conflicts:
            for sign, count in signs.items():
                self.identity_conflicts.count(producer, sign, count)

    def scraped(self, seconds: float, size: int) -> None:
        """Note an encoding."""
        self.scrape_seconds.observe(seconds)
        self.scrape_bytes.set(size)

    def _start_at_zero(self) -> None:
        for cause in (*DISCARD_CAUSES.values(), UNSUPPORTED):
            self.discarded.labels(cause)
        for cause in ("expired", "revoked", "tombstone"):
            self.removed.labels(cause)
        for reason in ("repeated", "dead_letter"):
            self.left.labels(reason)
        for event in ("assigned", "revoked", "lost"):
            self.rebalances.labels(event)
        for outcome in ("acknowledged", "unacknowledged", "refused"):
            self.alerts.labels(outcome)
        for state in ("exposed", "catching_up", "held", "absent"):
            self.series.labels(state)


def sample_names(registry: CollectorRegistry) -> frozenset[str]:
    """Every name in a registry, those of its families' samples included: no series may have one."""
    names: set[str] = set()
    for family in registry.collect():
        names.add(family.name)
        names.update(f"{family.name}{suffix}" for suffix in ("_total", "_bucket", "_sum", "_count", "_created"))
        names.update(sample.name for sample in family.samples)
    return frozenset(names)


def last_of_each(message: np.ndarray[tuple[int], np.dtype[np.int32]]) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Index of each message's last point; points are in the order of their messages."""
    last = np.ones(len(message), np.bool_)
    np.not_equal(message[1:], message[:-1], out=last[:-1])
    return last.nonzero()[0]


def _histogram(row: Metric, bounds: tuple[float, ...], registry: CollectorRegistry) -> Histogram:
    return Histogram(row.prometheus_name, row.help, row.labels, buckets=bounds, registry=registry)
