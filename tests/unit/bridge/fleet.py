"""What the bridge's tests are built from: series, points as columns, a Kafka of lists, a clock that is a number."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from confluent_kafka import OFFSET_END, TopicPartition
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.routing import BaseRoute

from kernelcast.bridge.delta.deltas import DeltaPolicy, Deltas
from kernelcast.bridge.delta.instruments import DeltaInstruments
from kernelcast.bridge.delta.settings import DeltaSettings
from kernelcast.bridge.delta.state import StateTopic
from kernelcast.bridge.expose.formats import text
from kernelcast.bridge.inputs import Selection, TopicFormat
from kernelcast.bridge.instruments import Instruments
from kernelcast.bridge.intake.batch import Message
from kernelcast.bridge.intake.consume import Intake, Parts, Policy
from kernelcast.bridge.series.columns import MessageColumns
from kernelcast.bridge.series.slots import SeriesLimits
from kernelcast.bridge.series.store import SeriesStore
from kernelcast.bridge.translation.translate import Placement
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


@dataclass(eq=False)
class Known:
    """An input whose series are known from the start; what it may forget is noted."""

    identity: Callable[[int], SeriesIdentity | Placement]
    forgotten: list[int] = field(default_factory=list)

    def forget(self, numbers: np.ndarray) -> None:
        self.forgotten += numbers.tolist()


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


def come_from(partition: int = 0, offset: int = 0, append_ms: int = 1_000, key_hash: int = 1) -> MessageColumns:
    others = (np.array([value], np.int64) for value in (offset, append_ms, key_hash))
    return MessageColumns(np.array([partition], np.int32), *others)


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
    keyed: bytes | None = b"key"
    told: tuple[tuple[str, bytes], ...] = ()

    def headers(self) -> list[tuple[str, bytes]] | None:
        return list(self.told) or None

    def topic(self) -> str:
        return self.at[0]

    def partition(self) -> int:
        return self.at[1]

    def offset(self) -> int:
        return self.at[2]

    def key(self) -> bytes | None:
        return self.keyed

    def value(self) -> bytes | None:
        return self.body

    def timestamp(self) -> tuple[int, int]:
        return self.kind, self.append_ms


@dataclass
class ListKafka:
    """A topic of lists; `consume` gives what was handed out."""

    logs: dict[tuple[str, int], list[Record]] = field(default_factory=dict)
    reading: dict[tuple[str, int], int] = field(default_factory=dict)
    commits: dict[tuple[str, int], int] = field(default_factory=dict)
    leaderless: set[tuple[str, int]] = field(default_factory=set)
    deleted: bool = False
    settles: bool = False
    told_high: int | None = None
    on_silence: Callable[[], None] = field(default=lambda: None)
    reached: list[TopicPartition] = field(default_factory=list)
    at_once: int = 1
    answers: bool = True
    questions: int = 0

    def write(self, topic: str, partition: int, body: bytes | None, append_ms: int, **further: Any) -> None:
        log = self.logs.setdefault((topic, partition), [])
        log.append(Record((topic, partition, len(log)), body, append_ms, **further))

    def assign(self, intake: Intake, *keys: tuple[str, int]) -> None:
        for key in keys:
            self.logs.setdefault(key, [])
        for start in intake.assigned([TopicPartition(*key) for key in keys]):
            self._read_from(start)

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

    def leaders(self) -> dict[tuple[str, int], int]:
        self.questions += 1
        if not self.answers:
            self.on_silence()
            raise BrokerError("no answer")
        return {} if self.deleted else {key: -1 if key in self.leaderless else key[1] % 3 for key in self.logs}

    def seek(self, partition: TopicPartition) -> None:
        self._read_from(partition)

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        if not self.answers:
            raise BrokerError("no answer")
        return 0, len(self.logs[partition.topic, partition.partition])

    def settled(self) -> bool:
        return self.settles

    def known_high(self, partition: TopicPartition) -> int:
        there = len(self.logs[partition.topic, partition.partition])
        return there if self.told_high is None else self.told_high

    def offsets_for_time(self, partitions: Sequence[TopicPartition], time_ns: int) -> list[TopicPartition]:
        assert not self.leaderless & {(p.topic, p.partition) for p in partitions}
        if not self.answers:
            raise BrokerError("no answer")

        def first(log: list[Record]) -> int:
            return next((record.offset() for record in log if record.append_ms >= time_ns // 1_000_000), len(log))

        return [
            TopicPartition(item.topic, item.partition, first(self.logs[item.topic, item.partition]))
            for item in partitions
        ]

    def commit(self, offsets: Sequence[TopicPartition]) -> None:
        self.commits.update({(item.topic, item.partition): item.offset for item in offsets})

    def committed(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition(p.topic, p.partition, self.commits.get((p.topic, p.partition), -1)) for p in partitions]

    def add(self, partitions: Sequence[TopicPartition]) -> None:
        for start in partitions:
            self._read_from(start)

    def remove(self, partitions: Sequence[TopicPartition]) -> None:
        for gone in partitions:
            del self.reading[gone.topic, gone.partition]

    def _read_from(self, start: TopicPartition) -> None:
        key = (start.topic, start.partition)
        self.reading[key] = len(self.logs[key]) if start.offset == OFFSET_END else max(start.offset, 0)


@dataclass
class Shelf:
    """Where messages are put aside."""

    messages: list[tuple[Message, Exception]] = field(default_factory=list)

    def send(self, message: Message, error: Exception) -> None:
        self.messages.append((message, error))


@dataclass(frozen=True)
class StateRecord:
    """A message on the state topic."""

    place: tuple[int, int]
    named: bytes
    body: bytes | None
    written_ns: int

    def partition(self) -> int:
        return self.place[0]

    def offset(self) -> int:
        return self.place[1]

    def key(self) -> bytes:
        return self.named

    def value(self) -> bytes | None:
        return self.body


@dataclass
class StateLog:
    """The topic of snapshots: what is sent can be read at once; `fails` loses it, as a producer would."""

    clock: ManualClock
    partitions_made: int = 3
    logs: dict[int, list[StateRecord]] = field(default_factory=dict)
    fails: bool = False
    answers: bool = True
    opened: int = 0
    _assigned: list[TopicPartition] = field(default_factory=list)
    _ends: list[TopicPartition] = field(default_factory=list)

    def open(self) -> "StateLog":
        self.opened += 1
        return self

    def send(
        self,
        _topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        on_delivery: Callable[[str | None], None] | None = None,
        partition: int | None = None,
    ) -> None:
        assert partition is not None
        assert key is not None
        if not self.fails:
            log = self.logs.setdefault(partition, [])
            log.append(StateRecord((partition, len(log)), key, value, self.clock.now_ns()))
        if on_delivery is not None:
            on_delivery("lost" if self.fails else None)

    def flush(self, _timeout_seconds: float) -> int:
        return 0

    def partitions(self, topic: str) -> list[TopicPartition]:
        if not self.answers:
            raise BrokerError("no answer")
        return [TopicPartition(topic, number) for number in range(self.partitions_made)]

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        return 0, len(self.logs.get(partition.partition, []))

    def offsets_for_time(self, partitions: Sequence[TopicPartition], time_ns: int) -> list[TopicPartition]:
        found = []
        for item in partitions:
            log = self.logs.get(item.partition, [])
            at = next((record.offset() for record in log if record.written_ns >= time_ns), len(log))
            found.append(TopicPartition(item.topic, item.partition, at))
        return found

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._assigned, self._ends = list(partitions), []

    def consume(self, *_: object) -> tuple[list[StateRecord], list[object]]:
        batch = [record for item in self._assigned for record in self.logs.get(item.partition, [])[item.offset :]]
        self._assigned, self._ends = [], self._assigned
        return batch, []

    def ends(self) -> list[TopicPartition]:
        reached, self._ends = self._ends, []
        return reached

    def compact(self) -> None:
        """Keep the newest message of each key, where it is; tombstones go."""
        for partition, log in self.logs.items():
            newest = {record.key(): record.offset() for record in log}
            kept = [record for record in log if newest[record.key()] == record.offset() and record.value() is not None]
            self.logs[partition] = [
                StateRecord((partition, offset), record.key(), record.value(), record.written_ns)
                for offset, record in enumerate(kept)
            ]

    def close(self) -> None:
        pass


@dataclass
class Site:
    """A bridge without its web server."""

    kafka: ListKafka = field(default_factory=ListKafka)
    clock: ManualClock = field(default_factory=ManualClock)
    shelf: Shelf = field(default_factory=Shelf)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    decoder: Decoder = field(default_factory=Decoder)
    formats: dict[str, TopicFormat] = field(default_factory=lambda: {"kernels": TopicFormat(format="otlp_proto")})
    ttl_seconds: float = 300.0
    policy: Policy | None = None
    state: StateLog | None = None
    deltas: DeltaSettings | None = None

    def __post_init__(self) -> None:
        self.selection = Selection(self.decoder, self.formats)
        policy = self.policy or Policy(self.ttl_seconds)
        self.state = self.state or StateLog(self.clock)
        self.store = SeriesStore(SeriesLimits(), share=self.policy.share if self.policy else None)
        self.instruments = Instruments(self.registry)
        totals = Deltas(
            DeltaPolicy(self.deltas or DeltaSettings(), policy.ttl_seconds, by_partition=policy.grouped),
            StateTopic("group", self.state, self.state.open, now_ns=self.clock.now_ns),
            DeltaInstruments(self.registry),
            self.clock,
        )
        parts = Parts(self.kafka, self.selection, self.store, self.shelf, self.instruments, self.clock, totals)
        self.intake = Intake(parts, policy)

    def export(
        self,
        partition: int,
        *written: Sample,
        append_ms: int | None = None,
        instance: str = "host-1",
        keyed: bytes | None = b"key",
    ) -> None:
        resource = Resource((("service.instance.id", instance), ("service.name", "kernelcast-exporter")))
        for export in encode(resource, written, scope="test"):
            now_ms = self.clock.now_ns() // 1_000_000
            at_ms = now_ms if append_ms is None else append_ms
            self.kafka.write("kernels", partition, export.body, at_ms, keyed=keyed)

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
