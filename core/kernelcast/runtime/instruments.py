"""Makes a daemon's own metrics from their rows in the catalogue, which alone hold names, help and labels.

Each part of a daemon calls it once, when it is made, with the registry that `/metrics` shows.
"""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.metrics_core import Metric as Family

from kernelcast.wire.catalogue import Metric


def counter(row: Metric, registry: CollectorRegistry) -> Counter:
    """The counter of a row; call `.labels(…)` for every known label set, so that it starts at 0."""
    return Counter(row.prometheus_name, row.help, row.labels, registry=registry)


def gauge(row: Metric, registry: CollectorRegistry) -> Gauge:
    """The gauge of a row."""
    return Gauge(row.prometheus_name, row.help, row.labels, registry=registry)


class WithoutCreated:
    """A registry without the `_created` series that prometheus_client adds; the catalogue has none."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Family]:
        """Every family of the registry, less those samples."""
        for family in self._registry.collect():
            kept = Family(family.name, family.documentation, family.type, family.unit)
            kept.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield kept
