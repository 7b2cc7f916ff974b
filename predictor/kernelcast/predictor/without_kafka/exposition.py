"""Serves samples of the catalogue's metrics on the predictor's own `/metrics`, as the bridge would.

`PrometheusOutputs` writes them after each cycle, scrapes read them on another thread.
"""

import threading
from collections.abc import Collection, Iterable, Sequence

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from kernelcast.columnar import Attributes, Sample
from kernelcast.wire.catalogue import Kind, Metric


class ServedSamples(Collector):
    """The newest sample of each series, until one without a value ends it. Thread-safe.

    Args:
        without: Metrics that are not served.

    >>> from kernelcast.wire.catalogue.forecast import JUDGED_SERIES
    >>> served = ServedSamples()
    >>> served.write(b"", [Sample(JUDGED_SERIES, (), 0, 3)])
    >>> [(sample.name, sample.value) for family in served.collect() for sample in family.samples]
    [('kernelcast_forecast_judged_series', 3)]
    """

    def __init__(self, without: Collection[Metric] = ()) -> None:
        self._without = without
        self._values: dict[Metric, dict[Attributes, float]] = {}
        self._lock = threading.Lock()

    def write(self, _key: bytes, samples: Iterable[Sample]) -> None:
        """Take samples of one record key; those that are absent stay."""
        with self._lock:
            for sample in samples:
                if sample.metric in self._without:
                    continue
                values = self._values.setdefault(sample.metric, {})
                if isinstance(sample.value, int | float):
                    values[sample.attributes] = sample.value
                else:
                    values.pop(sample.attributes, None)

    def collect(self) -> Iterable[Family]:
        """A family for each metric that has had a sample."""
        with self._lock:
            known = [(metric, list(values.items())) for metric, values in self._values.items()]
        return [family(metric, values) for metric, values in known]


class ServedGauges(Collector):
    """Gauges of the catalogue whose series are replaced as a whole. Thread-safe."""

    def __init__(self) -> None:
        self._families: Sequence[Family] = ()

    def show(self, gauges: dict[Metric, list[tuple[Attributes, float]]]) -> None:
        """Replace all series."""
        self._families = [family(metric, values) for metric, values in gauges.items()]

    def collect(self) -> Iterable[Family]:
        """The families that were shown last."""
        return self._families


def family(metric: Metric, values: Iterable[tuple[Attributes, float]]) -> Family:
    """The family of a row of the catalogue."""
    is_counter = metric.kind is Kind.COUNTER
    name = metric.prometheus_name.removesuffix("_total") if is_counter else metric.prometheus_name
    exposed = Family(name, metric.help, "counter" if is_counter else "gauge")
    for labels, value in values:
        exposed.add_sample(metric.prometheus_name, dict(labels), value)
    return exposed
