"""End to end: points per second from a Kafka topic that is full already into the series store, on one consumer.

    python benchmarks/ingest.py --kafka.bootstrap-servers localhost:9092 --json ingest.json
    python benchmarks/ingest.py --embedded

Messages are a node's: 240 points (30 metrics of 8 GPUs) with the labels of DCGM's metrics. The clock starts with the
first message and stops when every message has been read, decoded and stored; `known` counts only points after the first
point of every series, the normal work of a bridge. The embedded broker keeps only 5 MiB a partition; `messages_read` is
the number of messages that were really read.
"""

import argparse
import contextlib
import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client import CollectorRegistry

from kernelcast.bridge.clock import SystemClock
from kernelcast.bridge.inputs import Selection
from kernelcast.bridge.instruments import Instruments
from kernelcast.bridge.intake.consume import Intake
from kernelcast.bridge.intake.parts import IntakeParts, IntakePolicy
from kernelcast.bridge.series.store import SeriesStore
from kernelcast.bridge.tables.slots import SeriesLimits
from kernelcast.bridge.warm_up import warm_up, warm_up_the_rest
from kernelcast.columnar import Decoder, Resource, Sample, encode
from kernelcast.runtime.kafka import consumer
from kernelcast.runtime.kafka.consumer_metrics import ConsumerMetrics
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.catalogue import Kind, Metric

METRICS, GPUS = 30, 8
PARTITIONS = 4
ROWS = [Metric(f"BENCH_{i}", Kind.GAUGE, "A metric.", f"BENCH_{i}") for i in range(METRICS)]


def message(node: int, tick: int) -> bytes:
    """The message of one node at one tick."""
    host = f"node{node:05d}"
    now_ns = time.time_ns()
    samples = [
        Sample(
            row,
            (
                ("Hostname", host),
                ("UUID", f"GPU-{node * GPUS + gpu:08x}-aaaa-bbbb-cccc-dddddddddddd"),
                ("device", f"nvidia{gpu}"),
                ("gpu", str(gpu)),
                ("modelName", "NVIDIA H200"),
            ),
            now_ns,
            tick + gpu / 7 + i / 13,
        )
        for i, row in enumerate(ROWS)
        for gpu in range(GPUS)
    ]
    resource = Resource((("service.instance.id", host), ("service.name", "bench")))
    [export] = encode(resource, samples, scope="bench")
    return export.body


@dataclass
class Nowhere:
    """Dead letters, of which none is expected."""

    count: int = 0

    def send(self, _message: object, _error: Exception) -> None:
        """Count one."""
        self.count += 1


@dataclass
class Broker:
    """The broker and the topic of the measurement."""

    bootstrap_servers: str
    topic: str = field(default_factory=lambda: f"bench-{uuid.uuid4().hex[:8]}")

    def fill(self, nodes: int, ticks: int) -> int:
        """Write every message; returns how many."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "compression.type": "lz4",
                "linger.ms": 50,
                "partitioner": "murmur2_random",
            }
        )
        for tick in range(ticks):
            for node in range(nodes):
                while True:
                    try:
                        producer.produce(self.topic, message(node, tick), key=f"node{node:05d}")
                        break
                    except BufferError:
                        producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(120) == 0, "Kafka has not acknowledged every message"
        return nodes * ticks


@contextlib.contextmanager
def broker_of(options: argparse.Namespace) -> Iterator[Broker]:
    """The broker asked for, with a topic of its own."""
    if options.embedded:
        with EmbeddedBroker(topics=()) as embedded:
            broker = Broker(embedded.bootstrap_servers)
            embedded.add_topics([broker.topic])
            yield broker
        return
    broker = Broker(options.bootstrap_servers)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(broker.topic, PARTITIONS, 1)])[broker.topic].result(30)
    try:
        yield broker
    finally:
        admin.delete_topics([broker.topic])[broker.topic].result(30)


@dataclass
class Reading:
    """Result of reading a topic; times by `time.perf_counter`. `known`: after the first point of every series."""

    began: float = 0.0
    known_began: float = 0.0
    ended: float = 0.0
    cpu_seconds: float = 0.0
    messages: int = 0
    known_messages: int = 0
    series: int = 0


def read(broker: Broker, nodes: int, expected: int) -> Reading:
    """Read the topic through a consumer group into a store."""
    registry = CollectorRegistry()
    store = SeriesStore(SeriesLimits(10_000_000, 10_000_000))
    settings = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
    source = consumer.Consumer(settings, group_id=f"bench-{uuid.uuid4().hex[:8]}", metrics=ConsumerMetrics(registry))
    parts = IntakeParts(source, Selection(Decoder()), store, Nowhere(), Instruments(registry), SystemClock())
    intake = Intake(parts, IntakePolicy(ttl_seconds=86_400))
    source.subscribe([broker.topic], intake)
    reading, idle_since, cpu_began = Reading(), time.perf_counter(), 0.0
    while reading.messages < expected and time.perf_counter() - idle_since < 30:
        if not reading.messages:
            reading.began, cpu_began = time.perf_counter(), time.process_time()
        count = intake.step()
        reading.messages += count
        if count:
            reading.ended = idle_since = time.perf_counter()
            reading.cpu_seconds = time.process_time() - cpu_began
        if not reading.known_began and store.lines >= nodes * METRICS * GPUS:
            reading.known_began, reading.known_messages = time.perf_counter(), reading.messages
        if reading.messages and time.perf_counter() - idle_since > 3:
            break
    reading.series = store.lines
    source.close()
    return reading


def main() -> None:
    """Measure, print, and write the requested output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--kafka.bootstrap-servers", dest="bootstrap_servers", metavar="HOST:PORT")
    where.add_argument("--embedded", action="store_true", help="the broker inside this process")
    parser.add_argument("--nodes", type=int, help="240 series each; by default 416, or 60 with --embedded")
    parser.add_argument("--ticks", type=int, help="messages of each node; by default 30, or 10 with --embedded")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    nodes = options.nodes or (60 if options.embedded else 416)
    ticks = options.ticks or (10 if options.embedded else 30)
    warm_up()
    warm_up_the_rest()
    with broker_of(options) as broker:
        written = broker.fill(nodes, ticks)
        reading = read(broker, nodes, written)
    points = METRICS * GPUS
    seconds = reading.ended - reading.began
    figures: dict[str, float | str] = {
        "broker": "embedded" if options.embedded else "kafka",
        "series": reading.series,
        "messages_written": written,
        "messages_read": reading.messages,
        "seconds": seconds,
        "points_per_second": reading.messages * points / seconds,
        "cpu_seconds_per_million_points": reading.cpu_seconds * 1e6 / (reading.messages * points),
    }
    if reading.known_began and reading.ended > reading.known_began:
        known = (reading.messages - reading.known_messages) * points
        figures["known_points_per_second"] = known / (reading.ended - reading.known_began)
    for name, value in figures.items():
        print(f"{name:34} {value:,.4g}" if isinstance(value, float) else f"{name:34} {value}")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
