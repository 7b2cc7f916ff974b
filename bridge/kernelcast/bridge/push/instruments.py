"""The push's own metrics, made from the catalogue's rows; every counter starts at 0."""

from collections import Counter as Counts
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from kernelcast.runtime.instruments import counter, gauge
from kernelcast.wire.catalogue import bridge as rows

REQUEST_OUTCOMES: Final = ("acknowledged", "refused", "retried")
RETRY_CAUSES: Final = ("network", "throttled", "server_error", "configuration")
DISCARD_CAUSES: Final = (
    "wire_only",
    "temporality",
    "type_conflict",
    "unnamed",
    "labels_too_long",
    "malformed_histogram",
    "histogram_without_sum",
    "unsupported",
    "bad_time",
    "same_time",
    "out_of_order",
    "duplicate",
    "too_old",
    "out_of_bounds",
    "too_large",
    "rejected",
    "refused",
)


class PushMetrics:
    """The metrics of all destinations."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests: Counter = counter(rows.PUSH_REQUESTS, registry)
        self.points: Counter = counter(rows.PUSH_POINTS, registry)
        self.messages: Counter = counter(rows.PUSH_MESSAGES, registry)
        self.sent_bytes: Counter = counter(rows.PUSH_BYTES, registry)
        self.retries: Counter = counter(rows.PUSH_RETRIES, registry)
        self.discarded: Counter = counter(rows.PUSH_DISCARDED, registry)
        self.undecodable: Counter = counter(rows.PUSH_UNDECODABLE, registry)
        self.lost: Counter = counter(rows.PUSH_LOST_MESSAGES, registry)
        self.restarts: Counter = counter(rows.PUSH_RESTARTS, registry)
        self.lag: Gauge = gauge(rows.PUSH_LAG, registry)
        self.lag_seconds: Gauge = gauge(rows.PUSH_LAG_SECONDS, registry)
        self.up: Gauge = gauge(rows.PUSH_UP, registry)
        self.last_success: Gauge = gauge(rows.PUSH_LAST_SUCCESS, registry)


class DestinationMetrics:
    """The same for one destination.

    Attributes:
        name: The destination's.
    """

    def __init__(self, metrics: PushMetrics, name: str) -> None:
        self._metrics = metrics
        self.name = name
        self._start_at_zero()

    def acknowledged(self, points: int, sent_bytes: int, now_seconds: float) -> None:
        """Note a request that the receiver has taken."""
        self._metrics.requests.labels(self.name, "acknowledged").inc()
        self._metrics.points.labels(self.name).inc(points)
        self._metrics.sent_bytes.labels(self.name).inc(sent_bytes)
        self._metrics.up.labels(self.name).set(1)
        self._metrics.last_success.labels(self.name).set(now_seconds)

    def refused(self) -> None:
        """Note a request that the receiver has looked at and will not take."""
        self._metrics.requests.labels(self.name, "refused").inc()
        self._metrics.up.labels(self.name).set(1)

    def retried(self, cause: str) -> None:
        """Note a request that must be sent again."""
        self._metrics.requests.labels(self.name, "retried").inc()
        self._metrics.retries.labels(self.name, cause).inc()
        self._metrics.up.labels(self.name).set(0)

    def discarded(self, cause: str, points: int) -> None:
        """Note points that will not arrive."""
        if points:
            self._metrics.discarded.labels(self.name, cause).inc(points)

    def undecodable(self, error: str, messages: int = 1) -> None:
        """Note messages that are left out whole."""
        self._metrics.undecodable.labels(self.name, error).inc(messages)

    def committed(self, messages: int) -> None:
        """Note messages that are done with."""
        self._metrics.messages.labels(self.name).inc(messages)

    def lost(self, messages: int) -> None:
        """Note messages that Kafka's retention took before they were sent."""
        self._metrics.lost.labels(self.name).inc(messages)

    def restarted(self) -> None:
        """Note a fault that made a consumer start over: its requests are sent again."""
        self._metrics.restarts.labels(self.name).inc()
        self._metrics.up.labels(self.name).set(0)

    def lag(self, partitions: Iterable[tuple[str, int, int]]) -> None:
        """Set how many messages each partition (topic, number) still holds for this destination."""
        for topic, number, messages in partitions:
            self._metrics.lag.labels(self.name, topic, str(number)).set(messages)

    def forget(self, topic: str, partition: int) -> None:
        """Show no lag of a partition that another member has now."""
        self._metrics.lag.remove(self.name, topic, str(partition))

    def lag_seconds(self, age: Callable[[], float]) -> None:
        """Set the function that returns the backlog's age at every scrape: a stored value would stand still."""
        self._metrics.lag_seconds.labels(self.name).set_function(age)

    def _start_at_zero(self) -> None:
        metrics = self._metrics
        for outcome in REQUEST_OUTCOMES:
            metrics.requests.labels(self.name, outcome)
        for cause in RETRY_CAUSES:
            metrics.retries.labels(self.name, cause)
        for cause in DISCARD_CAUSES:
            metrics.discarded.labels(self.name, cause)
        for error in ("DecodeError", "format", "internal"):
            metrics.undecodable.labels(self.name, error)
        for each in (metrics.points, metrics.messages, metrics.sent_bytes, metrics.lost, metrics.restarts, metrics.up):
            each.labels(self.name)


class BatchCounts:
    """Counts points and messages left out of a part of a batch once it has been converted; for one thread.

    A part whose conversion fails is converted again, message by message; the counts of the first attempt are dropped.
    """

    def __init__(self, metrics: DestinationMetrics) -> None:
        self._metrics = metrics
        self._discarded: Counts[str] = Counts()
        self._undecodable: Counts[str] = Counts()

    def begin(self) -> None:
        """Drop the counts of an attempt that failed."""
        self._discarded.clear()
        self._undecodable.clear()

    def discarded(self, cause: str, points: int) -> None:
        """Note points that will not arrive."""
        self._discarded[cause] += points

    def undecodable(self, error: str) -> None:
        """Note a message that is left out whole."""
        self._undecodable[error] += 1

    def commit(self) -> None:
        """Add the counts to the metrics."""
        for cause, points in self._discarded.items():
            self._metrics.discarded(cause, points)
        for error, messages in self._undecodable.items():
            self._metrics.undecodable(error, messages)
        self.begin()
