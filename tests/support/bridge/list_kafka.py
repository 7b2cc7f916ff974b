"""A Kafka of lists, and a clock that is a number."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_END, TopicPartition
from tests.support.runtime.kafka_record import Record

from kernelcast.bridge.intake.consume import Intake
from kernelcast.runtime.kafka.clients import ReceivedMessage
from kernelcast.wire.errors import BrokerError


@dataclass
class ManualClock:
    seconds: float = 1_000.0
    offset_ns: int = 0

    def monotonic(self) -> float:
        return self.seconds

    def now_ns(self) -> int:
        return round(self.seconds * 1e9) + self.offset_ns


class SkewedClock(ManualClock):
    """A clock that advances with another one and shows another time of day: `offset_ns` is the difference."""

    def __init__(self, true: ManualClock, offset_ns: int = 0) -> None:
        super().__init__(offset_ns=offset_ns)
        self._true = true

    def monotonic(self) -> float:
        return self._true.monotonic()

    def now_ns(self) -> int:
        return self._true.now_ns() + self.offset_ns


MARKER = -1
"""Kind of a record that takes an offset and is never handed out: the end of a transaction, or one compacted away."""


@dataclass
class ListKafka:
    """A topic of lists; `consume` returns the messages that were released."""

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
    names_newest: bool = True
    fenced: bool = False
    waited_commits: int = 0
    ids: dict[str, str] = field(default_factory=dict)
    notes: dict[tuple[str, int], str] = field(default_factory=dict)

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
        """Tell the consumer that it has read everything up to an offset."""
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

    def newest_timestamps_ms(self, partitions: Sequence[TopicPartition]) -> dict[tuple[str, int], int]:
        if not self.names_newest:
            return {}
        logs = {(item.topic, item.partition): self.logs[item.topic, item.partition] for item in partitions}
        return {key: max(record.append_ms for record in log) for key, log in logs.items() if log}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        if not self.answers:
            raise BrokerError("no answer")
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}

    def commit(self, offsets: Sequence[TopicPartition], *, wait: bool = False) -> None:
        self.waited_commits += wait
        if self.fenced:
            if wait:
                raise BrokerError("unknown member")
            return
        self.commits.update({(item.topic, item.partition): item.offset for item in offsets})
        self.notes.update({(item.topic, item.partition): item.metadata or "" for item in offsets})

    def committed(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        keys = [(item.topic, item.partition) for item in partitions]
        return [TopicPartition(*key, self.commits.get(key, -1), self.notes.get(key, "")) for key in keys]

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
    """The dead-letter topic."""

    messages: list[tuple[ReceivedMessage, Exception]] = field(default_factory=list)

    def send(self, message: ReceivedMessage, error: Exception) -> None:
        self.messages.append((message, error))
