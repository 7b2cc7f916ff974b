"""A destination without a network: a Kafka of lists, a Prometheus of dictionaries, a clock that waiting moves."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from confluent_kafka import TopicPartition
from cramjam import snappy
from prometheus_client import CollectorRegistry
from tests.support.bridge.list_kafka import ManualClock
from tests.support.push.prometheus_protobuf import Request, WriteRequest
from tests.support.runtime.kafka_record import Record

from kernelcast.bridge.push.backlog import PushBacklog
from kernelcast.bridge.push.backoff import Backoff
from kernelcast.bridge.push.delivery import Delivery, DeliveryServices
from kernelcast.bridge.push.instruments import DestinationMetrics, PushMetrics
from kernelcast.bridge.push.otlp import OtlpSender, PayloadConverter
from kernelcast.bridge.push.pusher import Pusher, Stages
from kernelcast.bridge.push.reading import ReaderSettings
from kernelcast.bridge.push.receiver import Receiver
from kernelcast.bridge.push.remote_write.conversion import Conversion
from kernelcast.bridge.push.remote_write.requests import WriteSender
from kernelcast.bridge.push.settings import PushSettings
from kernelcast.columnar import Resource, Sample, encode
from kernelcast.runtime.kafka.consumer import NO_OFFSET
from kernelcast.wire.topics import KERNELS

MS = 1_000_000
P0, P1 = (KERNELS.name, 0), (KERNELS.name, 1)
RESOURCE = Resource((("service.instance.id", "node-1"), ("service.name", "exporter")))
Key = tuple[str, int]


@dataclass
class Log:
    """State that survives a crash: Kafka's messages, and the group's offsets."""

    messages: dict[Key, list[Record]] = field(default_factory=dict)
    committed: dict[Key, int] = field(default_factory=dict)
    first: dict[Key, int] = field(default_factory=dict)

    def write(self, key: Key, *samples: Sample, resource: Resource = RESOURCE) -> None:
        for export in encode(resource, samples, scope=""):
            self.write_body(key, export.body)

    def write_body(self, key: Key, body: bytes | None) -> None:
        log = self.messages.setdefault(key, [])
        log.append(Record((*key, len(log)), body, append_ms=1_000_000))


@dataclass
class GroupMember:
    """One consumer of a log."""

    log: Log
    clock: ManualClock
    at_once: int = 1000
    position: dict[Key, int] = field(default_factory=dict)
    paused: set[Key] = field(default_factory=set)
    reached: list[TopicPartition] = field(default_factory=list)
    due: list[Callable[[], None]] = field(default_factory=list)
    takes_commits: bool = True

    def join(self, backlog: PushBacklog, *keys: Key) -> None:
        for start in backlog.assigned([TopicPartition(*key) for key in keys]):
            self.position[start.topic, start.partition] = start.offset

    def leave(self, backlog: PushBacklog, *keys: Key, lost: bool = False) -> None:
        for key in keys:
            del self.position[key]
        backlog.revoked([TopicPartition(*key) for key in keys], lost=lost)

    def consume(self, max_messages: int, timeout_seconds: float) -> tuple[list[Record], list[Any]]:
        if self.due:
            self.due.pop(0)()
        found: list[Record] = []
        for key in sorted(self.position.keys() - self.paused):
            # What retention has deleted is skipped without a word, as with `auto.offset.reset`.
            self.position[key] = max(self.position[key], self.log.first.get(key, 0))
            room = min(max_messages, self.at_once) - len(found)
            more = self.log.messages.get(key, [])[self.position[key] :][:room]
            self.position[key] += len(more)
            found += more
        if not found:
            self.clock.seconds += timeout_seconds
        return found, []

    def ends(self) -> list[TopicPartition]:
        reached, self.reached = self.reached, []
        return reached

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        key = (partition.topic, partition.partition)
        return self.log.first.get(key, 0), len(self.log.messages.get(key, []))

    def known_high(self, partition: TopicPartition) -> int:
        return self.watermarks(partition)[1]

    def committed(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        offsets = self.log.committed
        return [
            TopicPartition(item.topic, item.partition, offsets.get((item.topic, item.partition), NO_OFFSET))
            for item in partitions
        ]

    def commit(self, offsets: Sequence[TopicPartition], *, wait: bool = False) -> None:  # noqa: ARG002  as Kafka's
        for item in offsets if self.takes_commits else ():
            self.log.committed[item.topic, item.partition] = item.offset

    def seek(self, partition: TopicPartition) -> None:
        self.position[partition.topic, partition.partition] = partition.offset

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused |= {(item.topic, item.partition) for item in partitions}

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused -= {(item.topic, item.partition) for item in partitions}


@dataclass
class PrometheusOfLists:
    """Takes remote write as Prometheus does: no sample older than its series' last, and 1.0 all or nothing.

    Attributes:
        script: Answers to give before it works.
        versions: Which of 1 and 2 it knows.
    """

    script: Sequence[httpx.Response | Exception] = ()
    versions: tuple[int, ...] = (1,)
    checks_content_type: bool = True
    bad_series: frozenset[str] = frozenset()
    samples: dict[tuple[tuple[str, str], ...], dict[int, float]] = field(default_factory=dict)
    requests: list[httpx.Request] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if self.script:
            answer, *self.script = self.script
            if isinstance(answer, Exception):
                raise answer
            return answer
        body = bytes(snappy.decompress_raw(request.content))
        second = "v2.Request" in request.headers["content-type"]
        if second and 2 not in self.versions:
            return httpx.Response(415, text="unknown") if self.checks_content_type else httpx.Response(204)
        return self._second(body) if second else self._first(body)

    def _first(self, body: bytes) -> httpx.Response:
        points = [
            (tuple((label.name, label.value) for label in series.labels), sample.timestamp, sample.value)
            for series in WriteRequest.FromString(body).timeseries
            for sample in series.samples
        ]
        before = {labels: dict(known) for labels, known in self.samples.items()}
        for labels, time_ms, value in points:
            if not self._take(labels, time_ms, value):
                self.samples = before
                return httpx.Response(400, text="out of order sample")
        return httpx.Response(204)

    def _second(self, body: bytes) -> httpx.Response:
        request = Request.FromString(body)
        taken = asked = 0
        for series in request.timeseries:
            texts = [request.symbols[ref] for ref in series.labels_refs]
            labels = tuple(zip(texts[::2], texts[1::2], strict=True))
            asked += len(series.samples)
            taken += sum(self._take(labels, sample.timestamp, sample.value) for sample in series.samples)
        written = {
            "X-Prometheus-Remote-Write-Samples-Written": str(taken),
            "X-Prometheus-Remote-Write-Histograms-Written": "0",
        }
        if taken < asked:
            return httpx.Response(400, headers=written, text="out of order sample")
        return httpx.Response(204, headers=written)

    def _take(self, labels: tuple[tuple[str, str], ...], time_ms: int, value: float) -> bool:
        known = self.samples.setdefault(labels, {})
        if dict(labels).get("kernel") in self.bad_series:
            return False
        last = max(known, default=-1)
        if time_ms < last or (time_ms == last and known[last] != value):
            return False
        known[time_ms] = value
        return True

    def by_kernel(self) -> dict[str, dict[int, float]]:
        return {dict(labels).get("kernel", ""): known for labels, known in self.samples.items() if known}


class PushSite:
    """One member that pushes; a second one on the same log and clock is a restart."""

    def __init__(
        self,
        receiver: Callable[[httpx.Request], httpx.Response],
        *,
        log: Log | None = None,
        clock: ManualClock | None = None,
        keys: Sequence[Key] = (P0,),
        **changes: Any,
    ) -> None:
        given = {"name": "d", "kind": "remote_write", "url": "http://receiver/", "start": "beginning", **changes}
        self.settings = PushSettings.model_validate(given)
        self.log, self.clock = log or Log(), clock or ManualClock()
        self.registry = CollectorRegistry()
        self.metrics = DestinationMetrics(PushMetrics(self.registry), "d")
        self.member = GroupMember(self.log, self.clock)
        self.stopping = False
        self.backlog = PushBacklog(self.member, self.metrics, self.clock, start=self.settings.start)
        self.waits: list[float] = []
        surroundings = DeliveryServices(self.metrics, Backoff(lambda: 0.5), self.clock, self._wait)
        http = Receiver(self.settings, clock=self.clock, transport=httpx.MockTransport(receiver))
        if self.settings.kind == "otlp":
            stages = Stages(
                self.backlog,
                PayloadConverter(self.settings, self.metrics, ReaderSettings()).payloads,
                Delivery(OtlpSender(http, self.settings).send, surroundings),
            )
        else:
            stages = Stages(
                self.backlog,
                Conversion(self.settings, self.metrics, ReaderSettings()).payloads,
                Delivery(WriteSender(http, self.settings).send, surroundings),
            )
        self.pusher = Pusher(stages, self.settings, self.metrics, lambda: self.stopping)
        self.member.join(self.backlog, *keys)

    def _wait(self, seconds: float) -> bool:
        if seconds:
            self.waits.append(seconds)
        return self.backlog.wait(seconds, stopping=lambda: self.stopping)

    def push_all(self) -> None:
        while self.pusher.step():
            pass

    def own(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"kernelcast_bridge_push_{name}", {"destination": "d", **labels})

    def discarded(self) -> dict[str, float]:
        return {
            sample.labels["cause"]: sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == "kernelcast_bridge_push_discarded_points_total" and sample.value
        }


def counting(answers: Sequence[httpx.Response]) -> Callable[[httpx.Request], httpx.Response]:
    """Give these answers, then 204 for ever."""
    given = itertools.chain(answers, itertools.repeat(httpx.Response(204)))
    return lambda _request: next(given)
