"""The Kafka of real schedules: three nodes that are kept for a run, with topics of each schedule's own."""

import contextlib
import tempfile
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka import Producer as Client
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.faults.model.moves import Moves
from tests.service.servers import KafkaCluster, wait_for

from kernelcast.wire.topics import TOPICS

TTL_SECONDS = 20.0
PARTITIONS = 3


@dataclass
class RealClock:
    """Unix time of this machine."""

    @property
    def seconds(self) -> float:
        """Now."""
        return time.time()


class Outgoing(NamedTuple):
    """A message that is to be written; an empty key is written as none."""

    topic: str
    number: int
    body: bytes | None
    key: bytes


class Outbox:
    """Messages on their way to Kafka. None is lost, and those of a partition stay in order until one is refused.

    The client refuses messages for a partition that was just added until its metadata has it. A broker that does not
    know a new topic yet makes the delivery fail. Both can take longer on a busy machine than a producer may wait.
    """

    def __init__(self, client: Any) -> None:
        self._client, self._kept = client, list[Outgoing]()

    def add(self, message: Outgoing) -> None:
        """Write a message."""
        self._kept.append(message)
        self.send()

    def send(self) -> None:
        """Serve deliveries, and write the refused and failed messages again."""
        self._client.poll(0)
        kept, self._kept = self._kept, []
        refused: set[tuple[str, int]] = set()
        for message in kept:
            to = message.topic, message.number
            if to in refused or not self._produce(message):
                refused.add(to)
                self._kept.append(message)

    def empty(self, seconds: float) -> bool:
        """Wait until Kafka has confirmed everything; returns whether it has."""
        self.send()
        return not self._client.flush(seconds) and not self._kept

    def forget(self, topic: str) -> None:
        """Drop the messages for a topic that is deleted."""
        self._kept = [message for message in self._kept if message.topic != topic]

    def _produce(self, message: Outgoing) -> bool:
        key, delivered = message.key or None, partial(self._note, message)
        try:
            self._client.produce(message.topic, message.body, key, message.number, on_delivery=delivered)
        except KafkaException:
            return False
        return True

    def _note(self, message: Outgoing, error: object, _message: object) -> None:
        if error is not None:
            self._kept.append(message)


@dataclass
class RealCluster:
    """A Kafka of three nodes as the model sees it: topics under names of this schedule, and who wrote where.

    Attributes:
        tag: Ends the names of topics and of the group.
        stamps: Whether Kafka stamps the messages of its topics.
        moves: How keys have moved between partitions.
        ids: By topic that exists, a number that no other topic has had.
        made_seconds, grown_seconds, joined_seconds: Empty: no bridge that joins is excused.
        away_seconds: Empty: which partitions could not be reached is not known here.
    """

    kafka: KafkaCluster
    tag: str
    stamps: bool = False
    clock: RealClock = field(default_factory=RealClock)
    moves: Moves = field(default_factory=Moves)
    ids: dict[str, int] = field(default_factory=dict)
    away_seconds: dict[tuple[str, int], float] = field(default_factory=dict)
    made_seconds: dict[str, float] = field(default_factory=dict)
    grown_seconds: dict[str, float] = field(default_factory=dict)
    joined_seconds: float = 0.0
    _counts: dict[str, int] = field(default_factory=dict)
    _made: int = 0

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers, "log_level": 0})
        options: dict[str, Any] = {"bootstrap.servers": self.kafka.bootstrap_servers, "acks": "all", "log_level": 0}
        client = Client({**options, "enable.idempotence": True, "topic.metadata.refresh.interval.ms": 2000})
        self._outbox = Outbox(client)

    def name(self, topic: str) -> str:
        """A topic's name on Kafka."""
        return f"{topic}-{self.tag}"

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic, or make it grow."""
        before = self._counts.get(topic, 0)
        if before >= partitions:
            return
        if before:
            made = self.admin.create_partitions([NewPartitions(self.name(topic), partitions)])
        else:
            config = {"message.timestamp.type": "LogAppendTime"} if self.stamps else {}
            created = NewTopic(self.name(topic), partitions, 3, config=config)
            made = self.admin.create_topics([created])
            self._made += 1
            self.ids[topic] = self._made
        made[self.name(topic)].result(30)
        self._counts[topic] = partitions

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        if self._counts.pop(topic, 0):
            del self.ids[topic]
            self._outbox.empty(10)
            self._outbox.forget(self.name(topic))
            self.admin.delete_topics([self.name(topic)])[self.name(topic)].result(30)

    def partitions(self, topic: str) -> int:
        """Number of a topic's partitions; 0 where there is no such topic."""
        return self._counts.get(topic, 0)

    def partition_of(self, topic: str, key: bytes, salt: int) -> int:
        """The partition that a producer's partitioner chooses."""
        return zlib.crc32(key, salt) % max(1, self.partitions(topic))

    def write(self, to: tuple[str, int], body: bytes | None, key: bytes) -> bool:
        """Queue a record; False without a topic."""
        topic, number = to
        if number >= self.partitions(topic):
            return False
        there, now_seconds = self.partitions(topic), self.clock.seconds
        self.moves.note((topic, key), number, partitions=there, now_seconds=now_seconds)
        self._outbox.add(Outgoing(self.name(topic), number, body, key))
        return True

    def flush(self) -> None:
        """Serve deliveries."""
        self._outbox.send()

    def delivered(self) -> bool:
        """Whether Kafka has confirmed all that was written; waits for it, for a moment."""
        return self._outbox.empty(2)

    def close(self) -> None:
        """Write what waits; delete the topics."""
        self._outbox.empty(5)
        with contextlib.suppress(KafkaException):
            self.admin.delete_topics([self.name(topic) for topic in self._counts])


@contextlib.contextmanager
def three_nodes() -> Iterator[tuple[KafkaCluster, Path]]:
    """Three nodes with kernelcast's own topics, and a folder; stopped and removed in the end."""
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        directory = Path(name)
        kafka = KafkaCluster(directory)
        try:
            kafka.run()
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
            wanted = [NewTopic(topic.name, PARTITIONS, 3, config=topic.config) for topic in TOPICS]
            wait_for("kernelcast's topics", lambda: _made(admin, wanted), 60)
            yield kafka, directory
        finally:
            kafka.kill()


def _made(admin: AdminClient, wanted: list[NewTopic]) -> bool:
    try:
        for made in admin.create_topics(wanted).values():
            made.result(10)
    except KafkaException:
        return {topic.topic for topic in wanted} <= set(admin.list_topics(timeout=5).topics)
    return True
