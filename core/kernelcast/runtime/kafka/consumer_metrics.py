"""The metrics of a daemon's consumers; all of them count in one set, which the daemon makes."""

from prometheus_client import CollectorRegistry

from kernelcast.runtime.instruments import counter, gauge
from kernelcast.wire.catalogue import runtime


class ConsumerMetrics:
    """Metrics of all consumers of a process.

    Attributes:
        errors: Errors met while reading.
        recoveries: Steps that were taken because a partition, or the membership of a group, stood still.
        failed: Partitions that are read no further, by topic.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Make the metrics.

        Args:
            registry: Where they are exposed; None does not expose them.
        """
        registry = registry if registry is not None else CollectorRegistry()
        self.errors = counter(runtime.CONSUMER_ERRORS, registry)
        self.recoveries = counter(runtime.CONSUMER_RECOVERIES, registry)
        self.failed = gauge(runtime.CONSUMER_FAILED, registry)
        for step in ("seek", "new_client", "failed"):
            self.recoveries.labels(step)

    def expect(self, topic: str) -> None:
        """Start the metrics of a topic at 0."""
        self.failed.labels(topic)
