"""A store that keeps exemplars."""

from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1 import metrics_pb2
from tests.support.bridge.fleet import come_from

from kernelcast.bridge.layouts.exemplars import Exemplar
from kernelcast.bridge.series.store import SeriesStore
from kernelcast.bridge.tables.slots import SeriesLimits
from kernelcast.columnar import Decoder

SECOND_NS = 10**9


TRACE, SPAN = bytes(range(16)), bytes(range(8))


CUMULATIVE = metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE


BOUNDS = [1.0, 2.0, 4.0]


def exemplar(value: float, second: int = 1, **others: Any) -> metrics_pb2.Exemplar:
    return metrics_pb2.Exemplar(as_double=value, time_unix_nano=second * SECOND_NS, **others)


class Site:
    """A decoder and a store."""

    def __init__(self) -> None:
        self.decoder, self.store, self.offset = Decoder(), SeriesStore(SeriesLimits()), 0
        self.store.expose(0, exposed=True)

    def send(self, metric: metrics_pb2.Metric) -> None:
        request = ExportMetricsServiceRequest()
        request.resource_metrics.add().scope_metrics.add().metrics.append(metric)
        self.offset += 1
        decoded = self.decoder.decode([request.SerializeToString()])
        assert decoded.failures == ()
        self.store.apply(decoded, come_from(0, self.offset, self.offset), self.decoder)

    def count(self, *exemplars: metrics_pb2.Exemplar, name: str = "hits", monotonic: bool = True) -> None:
        point = metrics_pb2.NumberDataPoint(as_int=7, time_unix_nano=self.offset + 1, exemplars=exemplars)
        counted = metrics_pb2.Sum(data_points=[point], aggregation_temporality=CUMULATIVE, is_monotonic=monotonic)
        self.send(metrics_pb2.Metric(name=name, sum=counted))

    def observe(self, *exemplars: metrics_pb2.Exemplar) -> None:
        point = metrics_pb2.HistogramDataPoint(
            count=4,
            sum=9.0,
            bucket_counts=[1, 1, 1, 1],
            explicit_bounds=BOUNDS,
            time_unix_nano=self.offset + 1,
            exemplars=exemplars,
        )
        histogram = metrics_pb2.Histogram(data_points=[point], aggregation_temporality=CUMULATIVE)
        self.send(metrics_pb2.Metric(name="latency", histogram=histogram))

    def shown(self) -> list[list[Exemplar]]:
        """The exemplars of each series that has some, in the page's order."""
        shown = self.store.snapshot().exemplars()
        return [list(shown[position]) for position in sorted(shown)]

    def values(self) -> list[float]:
        [only] = self.shown()
        return [one.value for one in only]
