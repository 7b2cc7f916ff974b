"""Parts of remote write's tests: a conversion with its counters, and requests read back by protobuf."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from tests.support.push.prometheus_protobuf import Request, WriteRequest
from tests.support.runtime.kafka_record import Record

from kernelcast.bridge.inputs import TopicFormat
from kernelcast.bridge.push.instruments import DestinationMetrics, PushMetrics
from kernelcast.bridge.push.reading import ReaderSettings
from kernelcast.bridge.push.remote_write.conversion import Conversion
from kernelcast.bridge.push.remote_write.requests import request_v1, request_v2
from kernelcast.bridge.push.remote_write.rows import WritePayload
from kernelcast.bridge.push.settings import PushSettings
from kernelcast.columnar import Resource, Sample, encode
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.topics import KERNELS

MS = 1_000_000
RESOURCE = Resource((("service.instance.id", "node-1"), ("service.name", "exporter")))
Labels = tuple[tuple[str, str], ...]


class Bench:
    """A conversion, and its counters."""

    def __init__(self, formats: Mapping[str, TopicFormat] | None = None, **changes: Any) -> None:
        self.registry = CollectorRegistry()
        destination = PushSettings(name="d", kind="remote_write", url="http://receiver", **changes)
        metrics = DestinationMetrics(PushMetrics(self.registry), "d")
        self.conversion = Conversion(destination, metrics, ReaderSettings(formats=formats or {}))

    def payloads(self, *bodies: bytes, topic: str = KERNELS.name) -> list[WritePayload]:
        messages = [Record((topic, 0, offset), body, append_ms=10) for offset, body in enumerate(bodies)]
        return [payload for _, payloads in self.conversion.payloads(messages) for payload in payloads]

    def discarded(self, cause: str) -> float | None:
        labels = {"destination": "d", "cause": cause}
        return self.registry.get_sample_value("kernelcast_bridge_push_discarded_points_total", labels)


def exports(*samples: Sample) -> list[bytes]:
    return [export.body for export in encode(RESOURCE, samples, scope="")]


def launches(value: float, time_ms: int, name: str = "gemm", start_ms: int = 1) -> Sample:
    return Sample(kernel.LAUNCHES, (("kernel", name),), time_ms * MS, int(value), start_ms * MS)


def read_v1(payloads: Sequence[WritePayload]) -> Iterator[tuple[Labels, Any]]:
    for payload in payloads:
        for series in WriteRequest.FromString(request_v1(payload)).timeseries:
            yield tuple((label.name, label.value) for label in series.labels), series


def read_v2(payloads: Sequence[WritePayload]) -> Iterator[tuple[Labels, Any]]:
    for payload in payloads:
        request = Request.FromString(request_v2(payload))
        assert request.symbols[0] == ""
        assert len(set(request.symbols)) == len(request.symbols)
        for series in request.timeseries:
            texts = [request.symbols[ref] for ref in series.labels_refs]
            yield tuple(zip(texts[::2], texts[1::2], strict=True)), series


def name_of(labels: Labels) -> str:
    return dict(labels)["__name__"]
