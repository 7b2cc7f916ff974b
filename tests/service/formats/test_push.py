"""Pushing from a real Kafka to real Prometheus servers: every point arrives, whatever dies in between."""

import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic
from tests.service.built import PROMETHEUS
from tests.service.conftest import Broker
from tests.service.servers import PrometheusServer, stopping, wait_for
from tests.service.stack import Stack
from tests.service.topics import create_topics
from tests.support.waiting import Stopwatch

from kernelcast.columnar import Resource, Sample, encode
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.topics import KERNELS

pytestmark = pytest.mark.service
RESOURCE = Resource((("service.instance.id", "node-1"), ("service.name", "kernelcast-exporter")))
OLD, NEW = "2.42", "3.15"
WAYS = {
    (OLD, "remote_write"): ("/api/v1/write", ["--web.enable-remote-write-receiver"]),
    (NEW, "remote_write"): (
        "/api/v1/write",
        [
            "--web.enable-remote-write-receiver",
            "--web.remote-write-receiver.accepted-protobuf-messages=prometheus.WriteRequest",
            "--web.remote-write-receiver.accepted-protobuf-messages=io.prometheus.write.v2.Request",
        ],
    ),
    (NEW, "otlp"): ("/api/v1/otlp/v1/metrics", ["--web.enable-otlp-receiver"]),
}
SERIES, STEP_MS = 6, 50


class Receiver(PrometheusServer):
    """A Prometheus that scrapes nothing and receives pushed points."""

    def __init__(self, directory: Path, version: str, kind: str) -> None:
        directory.mkdir(exist_ok=True)
        configuration = directory / "prometheus.yml"
        configuration.write_text("global: {scrape_interval: 1m}\n")
        path, options = WAYS[version, kind]
        program = PROMETHEUS.found() if version == NEW else None
        super().__init__(directory, configuration, program=program, options=options)
        self.push_url = self.url + path

    def points(self) -> dict[str, float]:
        """Number of points of each kernel, none counted twice."""
        found = self.query("count_over_time(cuda_kernel_launches_total[1h])")
        return {labels["kernel"]: value for labels, value in found}


class Writer:
    """Writes one point of every series after another, each with a time of its own."""

    def __init__(self, kafka: Broker) -> None:
        create_topics(kafka.bootstrap_servers, [NewTopic(KERNELS.name, 2, 1)])
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        self._start_ms = round(time.time() * 1000) - 600_000
        self.written = 0

    def write(self, rounds: int) -> None:
        for _ in range(rounds):
            self.written += 1
            time_ns = (self._start_ms + self.written * STEP_MS) * 1_000_000
            for number in range(SERIES):
                attributes = (("kernel", f"k{number}"),)
                totals = DurationTotals()
                totals.observe(1000 * (number + 1), self.written)
                samples = [
                    Sample(kernel.LAUNCHES, attributes, time_ns, self.written, 1),
                    Sample(kernel.DURATION, attributes, time_ns, totals, 1, detailed=True),
                ]
                for export in encode(RESOURCE, samples, scope="test"):
                    self._producer.produce(KERNELS.name, export.body, key=f"program-{number}".encode())
        assert self._producer.flush(20) == 0

    def all(self) -> dict[str, float]:
        return {f"k{number}": self.written for number in range(SERIES)}


def destination(receiver: Receiver, kind: str, **more: object) -> dict[str, object]:
    return {
        "name": "store",
        "kind": kind,
        "url": receiver.push_url,
        "start": "beginning",
        "linger_seconds": 0.2,
        **more,
    }


def arrived(receiver: Receiver, writer: Writer) -> Callable[[], bool]:
    return lambda: receiver.points() == writer.all()


@pytest.mark.parametrize(("version", "kind"), list(WAYS))
def test_every_point_arrives_across_an_outage_of_the_receiver_and_a_killed_bridge(
    kafka: Broker, tmp_path: Path, version: str, kind: str
) -> None:
    writer, receiver = Writer(kafka), Receiver(tmp_path / "receiver", version, kind)
    native = version == NEW
    push = [destination(receiver, kind, native_histograms=native)]
    with stopping(receiver), Stack(tmp_path, kafka.bootstrap_servers, {"bridge": {"push": push}}) as stack:
        receiver.run()
        bridge = stack.service("bridge")
        writer.write(40)
        wait_for("the first points", arrived(receiver, writer))
        receiver.stop()
        writer.write(40)
        wait_for("retries", lambda: stack.own("bridge", "kernelcast_bridge_push_retries_total") >= 2)
        assert stack.own("bridge", "kernelcast_bridge_push_up") == 0
        bridge.kill()
        writer.write(40)
        stack.start(bridge)
        receiver.run()
        wait_for("the points of the outage", arrived(receiver, writer))
        for _ in range(2):
            writer.write(40)
            bridge.kill()
            stack.start(bridge)
        wait_for("the points around each crash", arrived(receiver, writer))
        wait_for("no lag", lambda: stack.own("bridge", "kernelcast_bridge_push_lag_messages") == 0)
        if not native:
            bucket = 'cuda_kernel_duration_seconds_bucket{kernel="k0",le="+Inf"}'
            assert receiver.scalar(f"last_over_time({bucket}[1h])") == writer.written
            return
        last = 'last_over_time(cuda_kernel_duration_seconds{kernel="k3"}[1h])'
        assert receiver.scalar(f"histogram_count({last})") == writer.written
        assert receiver.scalar(f"histogram_quantile(0.5, {last})") == pytest.approx(4000e-9, rel=0.1)


def test_a_receiver_that_is_down_does_not_change_readiness_or_scraping(kafka: Broker, tmp_path: Path) -> None:
    writer = Writer(kafka)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        push = [{"name": "gone", "kind": "otlp", "url": url, "start": "beginning"}]
        with Stack(tmp_path, kafka.bootstrap_servers, {"bridge": {"push": push}}) as stack:
            bridge = stack.service("bridge")
            writer.write(5)
            wait_for("retries", lambda: stack.own("bridge", "kernelcast_bridge_push_retries_total") >= 3)
            wait_for("the series", lambda: stack.total("cuda_kernel_launches_total", kernel="k0") == writer.written)
            wait_for("the lag", lambda: stack.own("bridge", "kernelcast_bridge_push_lag_messages") == 5 * SERIES)
            with Stopwatch() as took:
                assert bridge.stop() == 0
            assert took.seconds < 12
