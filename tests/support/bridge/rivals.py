"""Producers of one job and instance that write one series, as OTLP messages into a store."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE as CUMULATIVE
from tests.support.bridge.fleet import come_from, exposed_store, page, samples

from kernelcast.bridge.intake.future_points import mark_future
from kernelcast.bridge.series.store import SeriesStore
from kernelcast.bridge.tables.columns import OLDER, SECOND_WRITER, STORED
from kernelcast.columnar import Decoder

EPOCH_SECONDS = 1_000_000
SECOND_NS = 10**9
KINDS = ("gauge", "counter", "histogram", "exponential")
NO_ATTRIBUTES: Mapping[str, str] = {}
SHOWN = {"gauge": "v", "counter": "v_total", "histogram": "v_count", "exponential": "v_count"}


def attribute(key: str, value: str | int) -> KeyValue:
    known = AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
    return KeyValue(key=key, value=known)


def export(
    kind: str,
    value: int,
    at_seconds: float,
    *,
    resource: dict[str, Any],
    start_seconds: float | None = None,
    name: str = "v",
) -> bytes:
    """A message with one point; without a start time where `start_seconds` is None."""
    request = ExportMetricsServiceRequest()
    of = request.resource_metrics.add()
    of.resource.attributes.extend(attribute(key, text) for key, text in resource.items())
    metric = of.scope_metrics.add().metrics.add(name=name)
    start_ns = 0 if start_seconds is None else round((EPOCH_SECONDS + start_seconds) * SECOND_NS)
    times = {"time_unix_nano": round((EPOCH_SECONDS + at_seconds) * SECOND_NS), "start_time_unix_nano": start_ns}
    if kind == "gauge":
        metric.gauge.data_points.add(as_int=value, **times)
    elif kind == "counter":
        metric.sum.aggregation_temporality, metric.sum.is_monotonic = CUMULATIVE, True
        metric.sum.data_points.add(as_int=value, **times)
    elif kind == "histogram":
        metric.histogram.aggregation_temporality = CUMULATIVE
        counts = {"bucket_counts": [value, 0], "explicit_bounds": [1.0]}
        metric.histogram.data_points.add(count=value, sum=1.0, **counts, **times)
    else:
        metric.exponential_histogram.aggregation_temporality = CUMULATIVE
        metric.exponential_histogram.data_points.add(count=value, zero_count=value, **times)
    return request.SerializeToString()


@dataclass
class Producers:
    """Producers of one job and instance that write one series into a store."""

    kind: str
    store: SeriesStore = field(default_factory=exposed_store)
    decoder: Decoder = field(default_factory=Decoder)
    offset: int = 0
    outcomes: dict[int, int] = field(default_factory=dict)

    def send(  # noqa: PLR0913  all that may differ between two producers
        self,
        value: int,
        at_seconds: float,
        *,
        pid: int = 1,
        start_seconds: float | None = None,
        partition: int = 0,
        key_hash: int = 1,
        name: str = "v",
        attributes: Mapping[str, str] = NO_ATTRIBUTES,
        ahead_seconds: float = 0.0,
    ) -> None:
        self.offset += 1
        resource = {"service.name": "train", "service.instance.id": "node1", "process.pid": pid, **attributes}
        event_seconds = at_seconds + ahead_seconds
        body = export(self.kind, value, event_seconds, start_seconds=start_seconds, resource=resource, name=name)
        origin = come_from(partition, self.offset, round((EPOCH_SECONDS + at_seconds) * 1e3), key_hash)
        decoded = self.decoder.decode([body])
        mark_future(decoded, origin.append_ms, 10 * SECOND_NS)
        counts = self.store.apply(decoded, origin, self.decoder)
        for code in (STORED, OLDER, SECOND_WRITER):
            self.outcomes[code] = self.outcomes.get(code, 0) + int(counts[code])

    @property
    def shown(self) -> float:
        [value] = [value for (name, _), value in samples(page(self.store)).items() if name == SHOWN[self.kind]]
        return value

    @property
    def conflicts(self) -> dict[str, int]:
        """Signs that node1's identity is shared, since they were last asked for."""
        found = {producer: signs for producer, signs in self.store.take_conflicts() if any(signs.values())}
        assert found.keys() <= {("train", "node1")}
        return {sign: count for sign, count in found.get(("train", "node1"), {}).items() if count}
