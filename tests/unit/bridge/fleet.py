"""What the bridge's tests are built from: series, points as columns, a Kafka of lists, a clock that is a number."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from confluent_kafka import TopicPartition
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.routing import BaseRoute

from kernelcast.bridge.batch import Message
from kernelcast.bridge.columns import MessageColumns
from kernelcast.bridge.consume import Intake, Parts
from kernelcast.bridge.exposition import text
from kernelcast.bridge.instruments import Instruments
from kernelcast.bridge.slots import SeriesLimits
from kernelcast.bridge.store import SeriesStore
from kernelcast.columnar import (
    IS_INTEGER,
    NO_RECORDED_VALUE,
    Attributes,
    Decoded,
    Decoder,
    HistogramColumns,
    NumberColumns,
    PointType,
    Resource,
    Sample,
    SeriesIdentity,
    Temporality,
    encode,
)
from kernelcast.wire.errors import BrokerError

RESOURCE = (("service.instance.id", "host-1"), ("service.name", "kernelcast-exporter"))
TARGET = {"job": "kernelcast-exporter", "instance": "host-1"}


def gauge(
    name: str = "some.gauge",
    *,
    resource: Attributes = RESOURCE,
    attributes: Iterable[tuple[str, str]] = (),
    **changes: Any,
) -> SeriesIdentity:
    values = {"type": PointType.GAUGE, "temporality": Temporality.UNSPECIFIED, "monotonic": False, **changes}
    return SeriesIdentity(
        resource=resource,
        scope_name="",
        scope_version="",
        name=name,
        unit=values.pop("unit", ""),
        attributes=tuple(sorted(attributes)),
        **values,
    )


def counter(name: str = "some.count", **changes: Any) -> SeriesIdentity:
    values = {"type": PointType.SUM, "temporality": Temporality.CUMULATIVE, "monotonic": True, **changes}
    return gauge(name, **values)


@dataclass(frozen=True)
class Point:
    series: int
    value: float | int | None
    time_ns: int = 0
    start_ns: int = 0


def no_histograms() -> HistogramColumns:
    return Decoder().decode([]).histograms


def decoded(points: Sequence[Point], message: int = 0) -> Decoded:
    def column(values: Iterable[object], kind: type) -> np.ndarray:
        return np.array(list(values), kind)

    whole = [isinstance(point.value, int) for point in points]
    flags = [
        NO_RECORDED_VALUE if point.value is None else IS_INTEGER if is_whole else 0
        for point, is_whole in zip(points, whole, strict=True)
    ]
    numbers = NumberColumns(
        series=column((point.series for point in points), np.int32),
        message=np.full(len(points), message, np.int32),
        start_ns=column((point.start_ns for point in points), np.uint64),
        time_ns=column((point.time_ns for point in points), np.uint64),
        value=column((0.0 if point.value is None else float(point.value) for point in points), np.float64),
        integer=column((point.value if w else 0 for point, w in zip(points, whole, strict=True)), np.int64),
        flags=column(flags, np.uint8),
    )
    return Decoded(numbers, no_histograms(), ())


def come_from(partition: int = 0, offset: int = 0, append_ms: int = 1_000) -> MessageColumns:
    return MessageColumns(
        np.array([partition], np.int32), np.array([offset], np.int64), np.array([append_ms], np.int64)
    )


def exposed_store(limits: SeriesLimits | None = None, **options: Any) -> SeriesStore:
    store = SeriesStore(limits or SeriesLimits(), **options)
    store.expose(0, exposed=True)
    return store


def page(store: SeriesStore) -> str:
    return b"".join(text(store.snapshot())).decode()


def samples(body: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    found = {}
    for family in text_string_to_metric_families(body):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{key} stands twice on the page"
            found[key] = sample.value
    return found


def values(store: SeriesStore, name: str) -> list[float]:
    return [value for (sample, _), value in samples(page(store)).items() if sample == name]


@dataclass
class ManualClock:
    seconds: float = 1_000.0
    offset_ns: int = 0

    def monotonic(self) -> float:
        return self.seconds

    def now_ns(self) -> int:
        return round(self.seconds * 1e9) + self.offset_ns


MARKER = -1
"""Kind of a record that takes an offset and is never handed out: the end of a transaction, or one compacted away."""


@dataclass(frozen=True)
class Record:
    """A message as confluent_kafka.Message has it."""

    at: tuple[str, int, int]
    body: bytes | None
    append_ms: int
    kind: int = 2

    def topic(self) -> str:
        return self.at[0]

    def partition(self) -> int:
        return self.at[1]

    def offset(self) -> int:
        return self.at[2]

    def key(self) -> bytes:
        return b"key"

    def value(self) -> bytes | None:
        return self.body

    def timestamp(self) -> tuple[int, int]:
        return self.kind, self.append_ms


@dataclass
class ListKafka:
    """A topic of lists; `consume` gives what was handed out."""

    logs: dict[tuple[str, int], list[Record]] = field(default_factory=dict)
    reading: dict[tuple[str, int], int] = field(default_factory=dict)
    committed: list[TopicPartition] = field(default_factory=list)
    reached: list[TopicPartition] = field(default_factory=list)
    at_once: int = 1
    answers: bool = True
    questions: int = 0

    def write(self, topic: str, partition: int, body: bytes | None, append_ms: int, kind: int = 2) -> None:
        log = self.logs.setdefault((topic, partition), [])
        log.append(Record((topic, partition, len(log)), body, append_ms, kind))

    def assign(self, intake: Intake, *keys: tuple[str, int]) -> None:
        for key in keys:
            self.logs.setdefault(key, [])
        for start in intake.assigned([TopicPartition(*key) for key in keys]):
            self.reading[start.topic, start.partition] = max(start.offset, 0)

    def revoke(self, intake: Intake, *keys: tuple[str, int], lost: bool = False) -> None:
        for key in keys:
            del self.reading[key]
        intake.revoked([TopicPartition(*key) for key in keys], lost=lost)

    def consume(self, *_: object) -> tuple[list[Record], list[object]]:
        batch: list[Record] = []
        for key, offset in self.reading.items():
            more = self.logs[key][offset : offset + self.at_once]
            self.reading[key] += len(more)
            batch += [record for record in more if record.kind != MARKER]
        return batch, []

    def end(self, topic: str, partition: int, offset: int) -> None:
        """Have the consumer told that it has read everything up to an offset."""
        self.reached.append(TopicPartition(topic, partition, offset))

    def ends(self) -> list[TopicPartition]:
        reached, self.reached = self.reached, []
        return reached

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        self.questions += 1
        if not self.answers:
            raise BrokerError("no answer")
        return 0, len(self.logs[partition.topic, partition.partition])

    def known_high(self, partition: TopicPartition) -> int:
        return len(self.logs[partition.topic, partition.partition])

    def offsets_for_time(self, partitions: Sequence[TopicPartition], time_ns: int) -> list[TopicPartition]:
        if not self.answers:
            raise BrokerError("no answer")

        def first(log: list[Record]) -> int:
            return next((record.offset() for record in log if record.append_ms >= time_ns // 1_000_000), len(log))

        return [
            TopicPartition(item.topic, item.partition, first(self.logs[item.topic, item.partition]))
            for item in partitions
        ]

    def commit(self, offsets: Sequence[TopicPartition]) -> None:
        self.committed = list(offsets)


@dataclass
class Shelf:
    """Where messages are put aside."""

    messages: list[tuple[Message, Exception]] = field(default_factory=list)

    def send(self, message: Message, error: Exception) -> None:
        self.messages.append((message, error))


@dataclass
class Site:
    """A bridge without its web server."""

    kafka: ListKafka = field(default_factory=ListKafka)
    clock: ManualClock = field(default_factory=ManualClock)
    shelf: Shelf = field(default_factory=Shelf)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    decoder: Decoder = field(default_factory=Decoder)
    ttl_seconds: float = 300.0

    def __post_init__(self) -> None:
        self.store = SeriesStore(SeriesLimits())
        self.instruments = Instruments(self.registry)
        parts = Parts(self.kafka, self.decoder, self.store, self.shelf, self.instruments, self.clock)
        self.intake = Intake(parts, ttl_seconds=self.ttl_seconds)

    def export(self, partition: int, *written: Sample, append_ms: int | None = None, instance: str = "host-1") -> None:
        resource = Resource((("service.instance.id", instance), ("service.name", "kernelcast-exporter")))
        for export in encode(resource, written, scope="test"):
            now_ms = self.clock.now_ns() // 1_000_000
            self.kafka.write("kernels", partition, export.body, now_ms if append_ms is None else append_ms)

    def read_all(self) -> None:
        while self.intake.step():
            pass

    def own(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


class Browser:
    """An HTTP client of routes, without a network."""

    def __init__(self, *routes: BaseRoute) -> None:
        self._app = Starlette(routes=list(routes))

    def ask(self, method: str, path: str, *, raw: bool = False, **options: Any) -> httpx.Response:
        return asyncio.run(self._ask(method, path, raw=raw, options=options))

    async def _ask(self, method: str, path: str, *, raw: bool, options: dict[str, Any]) -> httpx.Response:
        transport = httpx.ASGITransport(app=self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://bridge") as client:
            if not raw:
                return await client.request(method, path, **options)
            async with client.stream(method, path, **options) as answer:
                packed = b"".join([part async for part in answer.aiter_raw()])
                return httpx.Response(answer.status_code, headers={"x-length": str(len(packed))}, content=packed)
