from collections.abc import Sequence
from dataclasses import replace

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from kernelcast.columnar import Sample
from kernelcast.exporter.delivery.publish import SamplePublisher
from kernelcast.exporter.pipeline import Pipeline
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.exporter.totals.report import ProcessReport, SourceBatch
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.errors import SourceError
from kernelcast.wire.frames import Counters, KernelName, KernelRow
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Device, Process
from kernelcast.wire.topics import KERNELS

SECOND_NS = 1_000_000_000
DEVICE = Device("node1", "GPU-1")


class Script:
    """A source that gives prepared batches, one per poll."""

    def __init__(self, batches: Sequence[SourceBatch]) -> None:
        self.batches = list(batches)
        self.closed = 0

    def poll(self, now_ns: int) -> SourceBatch:  # noqa: ARG002  the protocol's
        return self.batches.pop(0) if self.batches else SourceBatch(done=True)

    def close(self) -> None:
        self.closed += 1


class Journal:
    """A producer and a state in one: what happened, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def send(self, topic: str, *, key: bytes | None, value: bytes | None) -> None:  # noqa: ARG002  the protocol's
        self.events.append(f"{topic} {(key or b'').decode()}")

    def save(self, aggregator: Aggregator) -> None:
        self.events.append(f"saved {len(aggregator.members)}")


def report(launches: int) -> ProcessReport:
    totals = DurationTotals()
    totals.observe(1_000, launches)
    return ProcessReport(
        Process("train", "n", 1),
        DEVICE,
        (KernelName(1, "gemm"),),
        (KernelRow(1, launches, totals),),
        Counters(0, (("h2d", "", 8, 2, 3),)),
    )


def temperature() -> Sample:
    return Sample(device.GPU_TEMP, DEVICE.device_labels(), 5, 40)


def test_totals_are_saved_before_they_are_published() -> None:
    journal = Journal()
    source = Script([SourceBatch((report(3),), (temperature(),))])
    Pipeline([source], Aggregator(), SamplePublisher(journal), save_state=journal.save).tick(10)
    assert journal.events == ["saved 1", "kernelcast.kernels train", "kernelcast.device node1"]


def test_a_tick_returns_the_sent_messages_and_the_tally_adds_up() -> None:
    journal = Journal()
    pipeline = Pipeline(
        [Script([SourceBatch((report(3),)), SourceBatch((report(5),))])], Aggregator(), SamplePublisher(journal)
    )
    first, second = pipeline.tick(10), pipeline.tick(20)
    tally = pipeline.tally()
    assert first.points == sum(len(group.samples) for group in first.programs)
    assert (tally.kernels, tally.copies, tally.messages) == (5, 2, 2)
    assert tally.points == first.points + second.points


def test_it_is_done_once_every_source_is() -> None:
    pipeline = Pipeline([Script([]), Script([SourceBatch()])], Aggregator(), SamplePublisher(Journal()))
    assert not pipeline.tick(10).done
    assert pipeline.tick(20).done


def test_without_sources_it_is_never_done() -> None:
    assert not Pipeline([], Aggregator(), SamplePublisher(Journal())).tick(10).done


def test_a_source_that_cannot_go_on_says_so() -> None:
    class Broken(Script):
        def poll(self, now_ns: int) -> SourceBatch:
            raise SourceError(f"the recording ends at {now_ns}")

    with pytest.raises(SourceError, match="ends at 10"):
        Pipeline([Broken([])], Aggregator(), SamplePublisher(Journal())).tick(10)


def test_closing_it_closes_every_source() -> None:
    sources = [Script([]), Script([])]
    Pipeline(sources, Aggregator(), SamplePublisher(Journal())).close()
    assert [source.closed for source in sources] == [1, 1]


def test_a_program_that_is_no_longer_written_ends_its_gauges_once_and_is_forgotten() -> None:
    sent: list[ExportMetricsServiceRequest] = []

    class Outbox:
        def send(self, topic: str, *, key: bytes | None, value: bytes | None) -> None:
            if (topic, key) == (KERNELS.name, b"train"):
                sent.append(ExportMetricsServiceRequest.FromString(value or b""))

    final = replace(report(3), method="cupti", final=True)
    publisher = SamplePublisher(Outbox())
    pipeline = Pipeline([Script([SourceBatch((final,))])], Aggregator(retire_after_seconds=10), publisher)
    pipeline.tick(SECOND_NS)
    while sent:
        sent.pop()
    pipeline.tick(20 * SECOND_NS)
    (last,) = sent
    metrics = last.resource_metrics[0].scope_metrics[0].metrics
    assert {point.flags for metric in metrics for point in metric.gauge.data_points} == {1}  # no recorded value
    assert "kernelcast.probe.coverage" in {metric.name for metric in metrics}
    pipeline.tick(30 * SECOND_NS)
    assert len(sent) == 1
    assert publisher.ended((), 0) == []


def test_a_report_that_cannot_be_used_does_not_count_the_processs_launches_twice() -> None:
    bad = replace(report(4), rows=(KernelRow(1, 4, None),))  # type: ignore[arg-type]
    reports = [SourceBatch((one,)) for one in (report(3), bad, report(5), replace(bad, final=True))]
    aggregator = Aggregator(retire_after_seconds=10)
    pipeline = Pipeline([Script(reports)], aggregator, SamplePublisher(Journal()))
    for second in range(1, 5):
        pipeline.tick(second * SECOND_NS)
    assert (aggregator.counts.launches, aggregator.counts.refused) == (5, 2)
    pipeline.tick(20 * SECOND_NS)
    assert not aggregator.members, "its last report was unusable, but it has ended"


def test_a_program_whose_samples_cannot_be_written_costs_no_interval_when_it_ends() -> None:
    bad = replace(report(3), process=Process("half a pair: \ud800", "b", 1), final=True)
    reports = [SourceBatch((bad,))]
    aggregator = Aggregator(retire_after_seconds=10)
    pipeline = Pipeline([Script(reports)], aggregator, SamplePublisher(Journal()))
    for second in (1, 20, 30):
        pipeline.tick(second * SECOND_NS)
    assert (len(aggregator.members), aggregator.counts.refused) == (0, 2)
