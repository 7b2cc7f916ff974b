"""Histograms stored, and as a page shows them."""

from collections.abc import Sequence

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE, Metric
from tests.support.bridge.fleet import RESOURCE, come_from, exposed_store, page, samples

from kernelcast.bridge.tables.columns import Int64Array
from kernelcast.bridge.tables.slots import SeriesLimits
from kernelcast.columnar import Decoder


def body_of(metric: Metric) -> bytes:
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    for key, value in RESOURCE:
        attribute = resource.resource.attributes.add(key=key)
        attribute.value.string_value = value
    resource.scope_metrics.add().metrics.append(metric)
    return request.SerializeToString()


def exponential(  # noqa: PLR0913  a point's fields
    *,
    time: int = 1,
    scale: int = 3,
    offset: int = 0,
    positive: Sequence[int] = (),
    negative: Sequence[int] = (),
    negative_offset: int = 0,
    zero: int = 0,
    threshold: float = 0.0,
    count: int | None = None,
    total: float | None = 1.0,
) -> bytes:
    metric = Metric(name="latency")
    metric.exponential_histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
    point = metric.exponential_histogram.data_points.add(
        time_unix_nano=time, start_time_unix_nano=1, scale=scale, zero_count=zero, zero_threshold=threshold
    )
    point.count = sum(positive) + sum(negative) + zero if count is None else count
    if total is not None:
        point.sum = total
    point.positive.offset = offset
    point.positive.bucket_counts.extend(positive)
    point.negative.offset = negative_offset
    point.negative.bucket_counts.extend(negative)
    return body_of(metric)


def explicit(
    bounds: Sequence[float],
    buckets: Sequence[int],
    *,
    time: int = 1,
    count: int | None = None,
    total: float | None = 1.0,
) -> bytes:
    metric = Metric(name="latency")
    metric.histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
    point = metric.histogram.data_points.add(time_unix_nano=time, start_time_unix_nano=1, sum=total)
    point.count = sum(buckets) if count is None else count
    point.explicit_bounds.extend(bounds)
    point.bucket_counts.extend(buckets)
    return body_of(metric)


class Shown:
    """A store that is fed messages, and the one histogram on its page."""

    def __init__(self, limits: SeriesLimits | None = None) -> None:
        self.store, self.decoder, self.offset = exposed_store(limits), Decoder(), 0

    def read(self, body: bytes) -> Int64Array:
        self.offset += 1
        decoded = self.decoder.decode([body])
        assert not decoded.failures
        return self.store.apply(decoded, come_from(offset=self.offset), self.decoder)

    def buckets(self, name: str = "latency") -> dict[float, float]:
        found = samples(page(self.store))
        return {
            float(dict(labels)["le"]): value for (sample, labels), value in found.items() if sample == f"{name}_bucket"
        }

    def value(self, suffix: str, name: str = "latency") -> float | None:
        found = samples(page(self.store))
        return next((value for (sample, _), value in found.items() if sample == f"{name}_{suffix}"), None)
