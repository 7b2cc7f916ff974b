"""Kafka and /metrics have the same series with the same values, for every source."""

from collections.abc import Iterator

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import DataPointFlags
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric as Sent
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from tests.support.exporter.nvml_double import gpu, node, playing

from kernelcast.exporter.delivery.publish import SamplePublisher
from kernelcast.exporter.exposition import IntervalExposition
from kernelcast.exporter.nvml.devices import KnownGpus
from kernelcast.exporter.nvml.sampling.sampler import Sampler
from kernelcast.exporter.nvml.source import NvmlSource
from kernelcast.exporter.pipeline import Pipeline
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.exporter.totals.report import ProcessReport, SourceBatch
from kernelcast.wire.catalogue import BY_OTLP_NAME
from kernelcast.wire.frames import KernelName, KernelRow
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Device, Process

NOW_NS = 1_795_000_000 * 10**9
Series = tuple[str, frozenset[tuple[str, str]]]


class Programs:
    """A program with one kernel in detail and many that are summed up."""

    def poll(self, _now_ns: int) -> SourceBatch:
        names = tuple(KernelName(number, f"kernel_{number}") for number in range(1, 6))
        report = ProcessReport(
            Process("train", "n", 1),
            Device("node1", "GPU-1"),
            names,
            tuple(map(self._row, range(1, 6))),
            method="cupti",
        )
        return SourceBatch((report,))

    def close(self) -> None:
        """Nothing is held."""

    def _row(self, number: int) -> KernelRow:
        totals = DurationTotals()
        totals.observe(1_000 * number, 10 * number)
        return KernelRow(number, 12 * number, totals)


class Kafka:
    """Keeps sent messages."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def send(self, _topic: str, *, key: bytes | None, value: bytes | None) -> None:
        assert key
        assert value
        self.values.append(value)


def carried(values: list[bytes]) -> Iterator[tuple[Series, float]]:
    """The series that Prometheus is to see, of what Kafka has; of a histogram its count and sum."""
    for value in values:
        for resource in ExportMetricsServiceRequest.FromString(value).resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    yield from points(metric)


def points(metric: Sent) -> Iterator[tuple[Series, float]]:
    row = BY_OTLP_NAME[metric.name]
    kind = metric.WhichOneof("data")
    assert kind is not None
    for point in getattr(metric, kind).data_points if row.exposed else ():
        if point.flags & DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK:
            continue  # it says that a series has ended
        labels = frozenset((one.key, one.value.string_value) for one in point.attributes)
        if "histogram" in kind:
            yield (f"{row.prometheus_name}_count", labels), point.count
            yield (f"{row.prometheus_name}_sum", labels), point.sum
        else:
            number = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
            yield (row.prometheus_name, labels), number


def shown(text: str) -> Iterator[tuple[Series, float]]:
    # Where the parser knows a counter it adds `_total` to its name, which DCGM's have not.
    untyped = "".join(f"{line}\n" for line in text.splitlines() if not line.startswith("#"))
    for family in text_string_to_metric_families(untyped):
        for sample in family.samples:
            if not sample.name.endswith("_bucket"):
                yield (sample.name, frozenset(sample.labels.items())), sample.value


def test_kafka_and_the_page_tell_the_same() -> None:
    kafka, exposition = Kafka(), IntervalExposition(CollectorRegistry())
    source = NvmlSource(Sampler(playing(node(gpu(), gpu("GPU-2", 1)))), hostname="node1", boot_ns=1).start()
    pipeline = Pipeline(
        [Programs(), KnownGpus(source, lambda: True)],
        Aggregator(max_kernels=3, detailed_kernels=1),
        SamplePublisher(kafka),
    )
    for second in range(2):
        kafka.values.clear()
        exposition.show(pipeline.tick(NOW_NS + second * 10**9))
    sent, page = dict(carried(kafka.values)), dict(shown(exposition._samples().decode()))
    assert sent == page
    names = {name for name, _ in page}
    assert {"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "kernelcast_gpu_up"} <= names
    assert {"cuda_kernel_launches_total", "cuda_kernel_duration_seconds_count"} <= names
    assert len(page) > 100
    pipeline.close()
