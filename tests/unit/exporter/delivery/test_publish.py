from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from kernelcast.columnar import Sample
from kernelcast.exporter.delivery.publish import SamplePublisher
from kernelcast.exporter.totals.aggregate import ProgramSamples
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Device, labels
from kernelcast.wire.topics import MAX_EXPORT_BYTES


class Outbox:
    """A producer that keeps its messages."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes | None, ExportMetricsServiceRequest]] = []
        self.sizes: list[int] = []

    def send(self, topic: str, *, key: bytes | None, value: bytes | None) -> None:
        self.sizes.append(len(value or b""))
        self.sent.append((topic, key, ExportMetricsServiceRequest.FromString(value or b"")))


def launches(kernel_name: str = "gemm", value: int = 3, hostname: str = "node1") -> Sample:
    attributes = labels(Hostname=hostname, UUID="GPU-1", program="train", kernel=kernel_name)
    return Sample(kernel.LAUNCHES, attributes, 2_000, value, 1_000)


def resource(request: ExportMetricsServiceRequest) -> dict[str, str]:
    (one,) = request.resource_metrics
    return {item.key: item.value.string_value for item in one.resource.attributes}


def test_a_programs_samples_are_keyed_by_program_and_name_their_host_as_writer() -> None:
    outbox = Outbox()
    SamplePublisher(outbox).kernels(ProgramSamples("node1", "train", (launches(),)))
    ((topic, key, request),) = outbox.sent
    assert (topic, key) == ("kernelcast.kernels", b"train")
    assert resource(request) == {
        "host.name": "node1",
        "service.instance.id": "node1",
        "service.name": "kernelcast-exporter",
    }
    (metric,) = request.resource_metrics[0].scope_metrics[0].metrics
    (point,) = metric.sum.data_points
    assert (metric.name, metric.sum.is_monotonic, point.as_int) == ("cuda.kernel.launches", True, 3)
    assert (point.start_time_unix_nano, point.time_unix_nano) == (1_000, 2_000)


def test_two_machines_of_one_host_name_are_distinguished_by_their_boot_ids() -> None:
    outbox = Outbox()
    for machine in ("a", "b"):
        SamplePublisher(outbox, boot_id=machine).kernels(ProgramSamples("node1", "train", (launches(),)))
    assert [resource(request)["kernelcast.boot.id"] for _, _, request in outbox.sent] == ["a", "b"]


def test_device_samples_are_keyed_by_their_own_host() -> None:
    outbox = Outbox()
    samples = [
        Sample(device.GPU_TEMP, Device(hostname, f"GPU-{hostname}").device_labels(), 2_000, 41)
        for hostname in ("node1", "node2", "node1")
    ]
    SamplePublisher(outbox).devices(samples)
    assert [(topic, key, resource(request)["host.name"]) for topic, key, request in outbox.sent] == [
        ("kernelcast.device", b"node1", "node1"),
        ("kernelcast.device", b"node2", "node2"),
    ]


def test_a_kernels_durations_travel_with_buckets_only_where_detailed() -> None:
    outbox, totals = Outbox(), DurationTotals()
    totals.observe(1_000_000)
    attributes = labels(Hostname="node1", kernel="gemm")
    samples = (
        Sample(kernel.DURATION, attributes, 2_000, totals, 1_000, detailed=True),
        Sample(kernel.DURATION, labels(Hostname="node1", kernel="copy"), 2_000, totals, 1_000),
    )
    SamplePublisher(outbox).kernels(ProgramSamples("node1", "train", samples))
    metrics = [
        metric for _, _, request in outbox.sent for metric in request.resource_metrics[0].scope_metrics[0].metrics
    ]
    kinds = {metric.WhichOneof("data") for metric in metrics}
    assert kinds == {"exponential_histogram", "histogram"}


def test_sent_requests_are_counted_and_split_below_the_limit() -> None:
    outbox = Outbox()
    publisher = SamplePublisher(outbox)
    samples = tuple(launches(f"kernel {number:05d} " + "x" * 60) for number in range(6_000))
    publisher.kernels(ProgramSamples("node1", "train", samples))
    assert len(outbox.sent) > 1
    assert max(outbox.sizes) <= MAX_EXPORT_BYTES
    assert (publisher.messages, publisher.points) == (len(outbox.sent), 6_000)
    assert publisher.size_bytes == sum(outbox.sizes)


def test_nothing_to_say_sends_nothing() -> None:
    outbox = Outbox()
    SamplePublisher(outbox).kernels(ProgramSamples("node1", "train", ()))
    SamplePublisher(outbox).devices(())
    assert not outbox.sent


def test_dcgm_exporters_newer_label_stands_beside_the_one_that_our_rules_read() -> None:
    outbox = Outbox()
    SamplePublisher(outbox, hostname_label="hostname").kernels(ProgramSamples("node1", "train", (launches(),)))
    (point,) = outbox.sent[0][2].resource_metrics[0].scope_metrics[0].metrics[0].sum.data_points
    keys = [item.key for item in point.attributes]
    assert keys == sorted(keys)
    values = {item.key: item.value.string_value for item in point.attributes}
    assert values["hostname"] == values["Hostname"] == "node1"
