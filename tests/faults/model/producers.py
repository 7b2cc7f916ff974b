"""Producers whose truth is known: what each wrote, in which run, and how it can be recognised on a page.

Counters are `64 * n + run`, so a sample says which run of the producer it belongs to.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from tests.faults.model.cluster import Cluster, Key

from kernelcast.columnar import Resource, Sample, encode
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import accelerator
from kernelcast.wire.histogram import DurationTotals

RUNS = 64
KERNELS, ORDERS = "kernels", "orders"
TOPICS = (KERNELS, ORDERS)
GAUGE = "kernelcast_accelerator_memory_used_bytes"
TOPIC_OF = {
    "cuda_kernel_launches_total": KERNELS,
    "cuda_kernel_duration_seconds_count": KERNELS,
    GAUGE: KERNELS,
    "orders_total": ORDERS,
    "waits_count": ORDERS,
    'waits_bucket{le="1"}': ORDERS,
    'waits_bucket{le="+Inf"}': ORDERS,
}
COUNTERS = tuple(name for name in TOPIC_OF if name != GAUGE)
SAMPLE = re.compile(
    r'^(?!kernelcast_producer_|target_info)(\w+)\{.*?instance="i(\d+)".*?(le="[^"]+")?\} (\S+)$', re.MULTILINE
)
MAX_KEPT = 20
DELIVERY_SECONDS = 24.0
"""`delivery.timeout.ms` is 2 minutes by default, and a time-to-live 5."""

Named = tuple[str, int]
"""A sample's name, with its bucket if it is one, and the number of its producer."""


def samples(page: str) -> Iterator[tuple[Named, float]]:
    """The samples of producers on a page; sums are left out, as they say what counts say."""
    for name, instance, bucket, value in SAMPLE.findall(page):
        if not name.endswith("_sum") and (bucket == "" or name.startswith("waits")):
            yield (f"{name}{{{bucket.replace('.0', '')}}}" if bucket else name, int(instance)), float(value)


@dataclass
class Run:
    """One process of a producer, from its start to its end.

    Attributes:
        number: Different for each run of a producer.
        start_ns: When it began, by its own clock.
        pid: A resource attribute.
        written: How many times it has written.
        first_seconds: When it wrote first, by Kafka's clock.
        last_seconds: When it wrote last.
    """

    number: int
    start_ns: int
    pid: int
    written: int = 0
    first_seconds: float = 0.0
    last_seconds: float = 0.0


@dataclass
class Producer:
    """A source of metrics, which may be restarted, or run twice under one name.

    Attributes:
        number: In its name and its key.
        runs: All that have ever been.
        alive: Those that write; the first is the true one.
        clock_seconds: How far its clock is ahead.
        salt: Of its partitioner.
        unkeyed: Whether its messages have no key.
        silent: Whether it writes nothing for now.
        hold: Messages to be held back and sent in reverse order.
        gauges: Values of its gauge, in the order in which they were written.
        written_seconds: By value of a counter or the gauge, when it was written.
    """

    cluster: Cluster
    number: int
    runs: list[Run] = field(default_factory=list)
    alive: list[Run] = field(default_factory=list)
    clock_seconds: float = 0.0
    salt: int = 0
    unkeyed: bool = False
    silent: bool = False
    hold: int = 0
    gauges: list[float] = field(default_factory=list)
    written_seconds: dict[float, float] = field(default_factory=dict)
    _turn: int = 0
    _held: list[tuple[str, bytes]] = field(default_factory=list)
    _sent: list[tuple[Key, bytes, bytes, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart(pid=0)

    @property
    def key(self) -> bytes:
        """The key of its messages."""
        return f"i{self.number}".encode()

    def restart(self, *, pid: int | None = None) -> None:
        """End all runs and begin another, with other resource attributes if a `pid` is given."""
        self.alive.clear()
        self.begin(pid)

    def begin(self, pid: int | None = None) -> None:
        """Begin a run beside those that are alive."""
        now_ns, before = self._now_ns(), self.runs[-1].pid if self.runs else 0
        number = len(self.runs) + 1
        start_ns = now_ns + number * 1_000_000  # after the last point of the run before
        run = Run(number, start_ns, before if pid is None else pid)
        self.runs.append(run)
        self.alive.append(run)

    def write(self) -> None:
        """Have each live run write its metrics once."""
        if self.silent:
            return
        for run in self.alive:
            if len(self.runs) < RUNS:
                self._write(run)

    def send_again(self, count: int) -> None:
        """Send the last messages once more, as a producer does whose acknowledgement was lost.

        None older than `DELIVERY_SECONDS`: that is when producers give up.
        """
        oldest_seconds = self.cluster.clock.seconds - DELIVERY_SECONDS
        for to, body, key, sent_seconds in self._sent[-count:]:
            if sent_seconds >= oldest_seconds:
                self.cluster.write(to, body, key)

    def bury(self, topic: str) -> None:
        """Write a tombstone for its key."""
        self.cluster.write((topic, self.cluster.partition_of(topic, self.key, self.salt)), None, self.key)

    def release(self) -> None:
        """Send the messages held back, in reverse order."""
        held, self._held = self._held[::-1], []
        for topic, body in held:
            self._send(topic, body)

    def release_when_due(self) -> None:
        """Count down while messages are held back, and send them in the end."""
        if self.hold > 0:
            self.hold -= 1
            if self.hold == 0:
                self.release()

    def calm(self) -> None:
        """End its faults; its messages keep their partitioner."""
        self.clock_seconds, self.silent, self.hold = 0.0, False, 0
        del self.alive[1:]
        self.release()

    def _write(self, run: Run) -> None:
        now_ns, now_seconds = self._now_ns() + run.number * 1_000_000, self.cluster.clock.seconds
        run.written += 1
        run.first_seconds, run.last_seconds = run.first_seconds or now_seconds, now_seconds
        value = RUNS * run.written + run.number
        durations = DurationTotals(value, 1000 * value)
        gauge = now_seconds - 1_700_000_000 + 0.5  # never a counter's value
        self.written_seconds[value] = self.written_seconds[gauge] = now_seconds
        if run is self.alive[0]:
            self.gauges.append(gauge)
        attributes = (("process.pid", str(run.pid)), ("service.instance.id", f"i{self.number}"), ("service.name", "s"))
        written = [
            Sample(kernel.LAUNCHES, (), now_ns, value, run.start_ns),
            Sample(kernel.DURATION, (), now_ns, durations, run.start_ns),
            Sample(accelerator.MEMORY_USED, (), now_ns, gauge),
        ]
        for export in encode(Resource(attributes), written, scope="faults"):
            self._hold_or_send(KERNELS, export.body)
        self._hold_or_send(ORDERS, _orders(attributes, run.start_ns, now_ns, value))

    def _hold_or_send(self, topic: str, body: bytes) -> None:
        if self.hold > 0:
            self._held.append((topic, body))
        else:
            self._send(topic, body)

    def _send(self, topic: str, body: bytes) -> None:
        key, partition = self.key, self.cluster.partition_of(topic, self.key, self.salt)
        if self.unkeyed:
            self._turn += 1
            key, partition = b"", self._turn % max(1, self.cluster.partitions(topic))
        if self.cluster.write((topic, partition), body, key):
            self._sent = [*self._sent, ((topic, partition), body, key, self.cluster.clock.seconds)][-MAX_KEPT:]

    def _now_ns(self) -> int:
        return round((self.cluster.clock.seconds + self.clock_seconds) * 1e9)


def _orders(attributes: tuple[tuple[str, str], ...], start_ns: int, time_ns: int, count: int) -> bytes:
    """A counter and an explicit histogram with the same count."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    for name, value in attributes:
        attribute = resource.resource.attributes.add()
        attribute.key, attribute.value.string_value = name, value
    metrics = resource.scope_metrics.add().metrics
    orders, waits = metrics.add(name="orders"), metrics.add(name="waits")
    orders.sum.aggregation_temporality = waits.histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
    orders.sum.is_monotonic = True
    orders.sum.data_points.add(start_time_unix_nano=start_ns, time_unix_nano=time_ns, as_int=count)
    waits.histogram.data_points.add(
        start_time_unix_nano=start_ns,
        time_unix_nano=time_ns,
        count=count,
        sum=0.5 * count,
        explicit_bounds=[1.0],
        bucket_counts=[count, 0],
    )
    return bytes(request.SerializeToString())
