"""Two predictors of one group on a real Kafka: together they name the GPU that was slow from its first minute."""

import time
from collections.abc import Iterator

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from tests.service.conftest import Broker
from tests.support.predictor.node import SECOND_NS, read_all
from tests.support.service.predictors import RunningPredictor
from tests.support.service.programs import topics
from tests.support.waiting import eventually

from kernelcast.columnar import Decoder, Resource, Sample, encode
from kernelcast.predictor.alarms.settings import AlarmSettings
from kernelcast.predictor.engine import Engine
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.predictor.state.baselines_topic import BaselineLog
from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.kafka.deadletter import DeadLetters
from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.settings.service import KafkaSettings, WebSettings
from kernelcast.wire.baselines import KernelBaseline, baseline_from
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.cloudevents import decode_event
from kernelcast.wire.events import finding_from
from kernelcast.wire.findings import Finding, Severity
from kernelcast.wire.identity import labels
from kernelcast.wire.topics import BASELINES, DEADLETTER, DEFAULT_PARTITIONS, FINDINGS, KERNELS

pytestmark = pytest.mark.service

PARTITIONS = (0, 3, 5, 6, 8, 11)
"""One of each node: with `RANGE`, each of two members has three of them."""
RANGE = {"partition.assignment.strategy": "range", "heartbeat.interval.ms": "300", "session.timeout.ms": "6000"}
KERNELS_USED = (("gemm#01", "128x1x1|256x1x1", 1e-3), ("norm#02", "64x1x1|128x1x1", 2e-4))
EXPORTER = Resource((("service.instance.id", "n"), ("service.name", "kernelcast-exporter")))


class Nodes:
    """Six nodes with a GPU and a program each; the first GPU is slow. Event time runs fast."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self.producer = Producer(kafka, client_id="nodes")
        self.start_ns = time.time_ns() - 600 * SECOND_NS
        self.rng = np.random.default_rng(3)
        self.second = 0
        self.totals = {(node, name): [0, 0.0] for node in range(6) for name, _, _ in KERNELS_USED}

    def write(self, seconds: int) -> None:
        for _ in range(seconds):
            self.second += 1
            for node, partition in enumerate(PARTITIONS):
                for export in encode(EXPORTER, list(self._samples(node)), scope="test"):
                    self.producer.send(
                        KERNELS.name, key=f"serve-{node}".encode(), value=export.body, partition=partition
                    )
        assert self.producer.flush(10) == 0

    def _samples(self, node: int) -> Iterator[Sample]:
        now_ns = self.start_ns + self.second * SECOND_NS
        words = {"Hostname": f"n{node}", "UUID": f"GPU-{node}", "gpu": "0", "program": f"serve-{node}"}
        tunable = {"tunable": "batch", "value": "8", "device_model": "H100", "code_version": "v3"}
        yield Sample(kernel.TUNABLE_INFO, labels(**words, **tunable), now_ns, 1)
        for name, variant, usual_seconds in KERNELS_USED:
            total = self.totals[node, name]
            total[0] += 100
            total[1] += 100 * usual_seconds * (1.25 if node == 0 else 1.0) * (1 + 0.01 * self.rng.standard_normal())
            own = labels(**words, kernel=name, kernel_class="compute", variant=variant)
            yield Sample(kernel.VARIANT_LAUNCHES, own, now_ns, total[0], self.start_ns)
            yield Sample(kernel.VARIANT_SECONDS, own, now_ns, total[1], self.start_ns)


def settings(kafka: KafkaSettings, name: str) -> PredictorSettings:
    return PredictorSettings(
        kafka=kafka,
        web=WebSettings(listen_address="127.0.0.1:0"),
        group_id="shared-baselines",
        client_id=name,
        interval_seconds=1.0,
        window_points=120,
        horizons_seconds=(60.0, 300.0),
        sweep_every_seconds=0.25,
        snapshot_every_seconds=600.0,
        alarms=AlarmSettings(hold_seconds=0.0),
    )


def kernel_partitions(running: RunningPredictor) -> int:
    return sum(topic == KERNELS.name for topic, _ in running.predictor._partitions.held)


def baselines(kafka: KafkaSettings) -> dict[str, KernelBaseline]:
    records = {key.decode(): value for key, value in read_all(kafka, BASELINES.name) if key != b"poison"}
    return {key: baseline_from(decode_event(value)) for key, value in records.items()}


def findings(kafka: KafkaSettings) -> list[Finding]:
    return [finding_from(decode_event(value)) for _, value in read_all(kafka, FINDINGS.name)]


def test_two_predictors_share_baselines_name_the_slow_gpu_and_a_restart_writes_nothing_again(
    shared_kafka: Broker,
) -> None:
    topics(shared_kafka, partitions=DEFAULT_PARTITIONS)
    kafka = KafkaSettings(bootstrap_servers=shared_kafka.bootstrap_servers, properties=RANGE)
    Decoder.warm_up()
    nodes = Nodes(kafka)
    nodes.producer.send(BASELINES.name, key=b"poison", value=b"{not an event")
    with RunningPredictor(settings(kafka, "one")) as one, RunningPredictor(settings(kafka, "two")) as two:
        both = (one, two)
        eventually(lambda: [kernel_partitions(each) for each in both] == [6, 6])
        nodes.write(24)

        def shared() -> bool:
            nodes.write(2)
            compared = [each.value("kernelcast_predictor_baseline_references") for each in both]
            return compared == [3 * len(KERNELS_USED)] * 2

        eventually(shared)
        eventually(lambda: any(found.evidence[0].peers for found in findings(kafka) if found.evidence))
        for each in both:
            assert each.value("kernelcast_predictor_baseline_parts_total") >= 2 * len(KERNELS_USED)
            assert each.value("kernelcast_predictor_baselines_refused_total", reason="unusable") == 1
    (key, found), *_ = sorted(baselines(kafka).items())
    assert key == "gemm#01|128x1x1%7C256x1x1 batch=8|H100"
    # The slow node has shared its own part only where its predictor did not know the others yet.
    healthy = {(f"n{node}", f"serve-{node}", "v3") for node in range(1, 6)}
    assert {(part.hostname, part.program, part.code_version) for part in found.nodes} >= healthy
    named = [one for one in findings(kafka) if one.cause is Cause.AGEING]
    assert {dict(one.labels)["UUID"] for one in named} == {"GPU-0"}
    assert {(one.severity, one.evidence[0].peers >= 3, one.evidence[0].code_version) for one in named} == {
        (Severity.TICKET, True, "v3")
    }
    assert len(read_all(kafka, DEADLETTER.name)) == 2
    restarted(kafka, nodes.producer)


def restarted(kafka: KafkaSettings, producer: Producer) -> None:
    """A predictor that starts again knows all baselines, and writes none of them."""
    fleet = Engine(PredictorSettings(client_id="one"), clock_ns=time.time_ns).cycle.fleet
    reader = Consumer(kafka, group_id="again")
    rejected = DeadLetters(producer, registry=CollectorRegistry())
    log = BaselineLog(
        fleet, producer, reader, rejected, client_id="one", clock_ns=time.time_ns, registry=CollectorRegistry()
    )
    eventually(lambda: log.poll(0.1) >= 0 and fleet.shared.caught_up)
    assert len(fleet.shared) == len(KERNELS_USED)
    assert log.write() == 0
    log.close(5.0)
