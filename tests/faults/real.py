"""The same schedules with real processes: three Kafka nodes, bridges of the command line, scrapes over HTTP."""

import contextlib
import os
import signal
import tempfile
import time
import urllib.error
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import KafkaException
from confluent_kafka import Producer as Client
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from tests.faults.bridges import DROPPED, Mode
from tests.faults.invariants import Violation
from tests.faults.producers import Named, samples
from tests.service.servers import KafkaCluster, ServerProcess, answers, free_ports, get, wait_for
from tests.service.stack import KERNELCAST

from kernelcast.wire.topics import STATE

TTL_SECONDS = 20.0
HEALTHY_SECONDS = 1.0


@dataclass
class RealClock:
    """Unix time of this machine."""

    @property
    def seconds(self) -> float:
        """Now."""
        return time.time()


@dataclass
class RealCluster:
    """A Kafka of three nodes as the model sees it: topics under names of this schedule, and who wrote where.

    Attributes:
        tag: Ends the names of topics and of the group.
        moved_seconds: By topic and key, when a record last went to another partition than the one before.
    """

    kafka: KafkaCluster
    tag: str
    clock: RealClock = field(default_factory=RealClock)
    moved_seconds: dict[tuple[str, bytes], float] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _last: dict[tuple[str, bytes], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap_servers, "log_level": 0})
        options: dict[str, Any] = {"bootstrap.servers": self.kafka.bootstrap_servers, "acks": "all", "log_level": 0}
        self._client = Client({**options, "enable.idempotence": True, "topic.metadata.refresh.interval.ms": 2000})

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
            made = self.admin.create_topics([NewTopic(self.name(topic), partitions, 3)])
        made[self.name(topic)].result(30)
        self._counts[topic] = partitions

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        if self._counts.pop(topic, 0):
            self._client.flush(10)
            self.admin.delete_topics([self.name(topic)])[self.name(topic)].result(30)

    def partitions(self, topic: str) -> int:
        """How many partitions it has."""
        return self._counts.get(topic, 0)

    def partition_of(self, topic: str, key: bytes, salt: int) -> int:
        """The partition that a producer's partitioner chooses."""
        return zlib.crc32(key, salt) % max(1, self.partitions(topic))

    def write(self, to: tuple[str, int], body: bytes, key: bytes) -> bool:
        """Queue a record; False without a topic."""
        topic, number = to
        if number >= self.partitions(topic):
            return False
        if self._last.setdefault((topic, key), number) != number:
            self._last[topic, key] = number
            self.moved_seconds[topic, key] = self.clock.seconds
        for _ in range(20):  # a partition that was just added is not known to the client yet
            try:
                self._client.produce(self.name(topic), body, key, number)
            except KafkaException:
                self._client.poll(0.2)
            else:
                return True
        return False

    def flush(self) -> None:
        """Serve deliveries."""
        self._client.poll(0)

    def close(self) -> None:
        """Write what waits; delete the topics."""
        self._client.flush(5)
        with contextlib.suppress(KafkaException):
            self.admin.delete_topics([self.name(topic) for topic in self._counts])


@dataclass
class RealReplica:
    """A place where a bridge process runs, or does not; as `bridges.Replica` is to the model.

    Attributes:
        polls: Of no meaning here.
        drops: Delta points that bridges here have counted as not added, as last seen.
    """

    cluster: RealCluster
    number: int
    count: int
    mode: Mode
    directory: Path
    polls: int = 0
    suspended: bool = False
    ahead_seconds: float = 0.0
    drops: float = 0.0
    server: ServerProcess | None = None
    _dropped: float = 0.0

    def __post_init__(self) -> None:
        (self._port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}"

    @property
    def running(self) -> bool:
        """Whether it can be scraped."""
        return self.server is not None and not self.suspended and answers(f"{self.url}/-/healthy")

    def start(self) -> None:
        """Start a bridge, with a clock that is ahead where that is wanted."""
        if self.server is not None:
            return
        settings: dict[str, Any] = {
            "web": {"listen_address": f"127.0.0.1:{self._port}"},
            "mode": self.mode,
            "group_id": f"bridge-{self.cluster.tag}",
            "topics": [self.cluster.name("kernels"), self.cluster.name("orders")],
            "ttl_seconds": TTL_SECONDS,
            "ttl_floor_seconds": 8,
            "missed_intervals": 8,
            "takeover_seconds": 8,
            "deltas": {"snapshot_seconds": 3},
        }
        if self.mode == "sharded":
            settings |= {"replica_index": self.number, "replica_count": self.count}
        kafka = {
            "bootstrap_servers": self.cluster.kafka.bootstrap_servers,
            "properties": {"session.timeout.ms": 6000, "topic.metadata.refresh.interval.ms": 3000},
        }
        configuration = self.directory / f"bridge-{self.number}.yaml"
        configuration.write_text(yaml.safe_dump({"kafka": kafka, "bridge": settings}))
        command = [*KERNELCAST, "bridge", "--config", str(configuration)]
        if self.ahead_seconds:
            command = ["faketime", "-f", f"{self.ahead_seconds:+.0f}s", *command]
        environ = {"FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        self.server = ServerProcess(f"bridge-{self.number}", command, self.directory, environ).start()

    def kill(self) -> None:
        """`kill -9`."""
        if self.server is not None:
            self.server.kill()
        self._gone()

    def leave(self) -> None:
        """SIGTERM."""
        if self.server is not None and not self.suspended:
            self.server.stop(30)
            self._gone()

    def suspend(self) -> None:
        """SIGSTOP."""
        if self.server is not None and not self.suspended:
            self._signal(signal.SIGSTOP)
            self.suspended = True

    def resume(self) -> None:
        """SIGCONT."""
        if self.suspended:
            self.suspended = False
            self._signal(signal.SIGCONT)

    def scrape(self) -> dict[Named, float]:
        """The samples that it exposes."""
        try:
            page = get(f"{self.url}/metrics", 10)
        except OSError:
            return {}
        lines = [line for line in page.splitlines() if line.startswith("kernelcast_bridge_delta_points_total")]
        dropped = [float(line.rpartition(" ")[2]) for line in lines if any(f'"{one}"' in line for one in DROPPED)]
        self.drops = self._dropped + sum(dropped)
        return dict(samples(page))

    def healthy(self) -> None:
        """Ask `/-/healthy`; one that answers anything else than 200 is taken to have just ended.

        Raises:
            Violation: It takes longer than a second, twice.
        """
        took = [self._health_seconds() for _ in range(2)]
        if min(took) > HEALTHY_SECONDS:
            raise Violation("health takes too long", f"replica {self.number}: {took}")

    def ready(self) -> bool:
        """What `/-/ready` answers."""
        return answers(f"{self.url}/-/ready")

    def behind(self) -> list[tuple[str, int]]:
        """Of a process this is not known; the model judges it."""
        return []

    def _health_seconds(self) -> float:
        began = time.monotonic()
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            get(f"{self.url}/-/healthy", 5)
        return time.monotonic() - began

    def _signal(self, number: signal.Signals) -> None:
        assert self.server is not None
        assert self.server.process is not None
        os.killpg(self.server.process.pid, number)

    def _gone(self) -> None:
        self._dropped, self.server, self.suspended = self.drops, None, False


@contextlib.contextmanager
def three_nodes() -> Iterator[tuple[KafkaCluster, Path]]:
    """Three nodes with a topic for snapshots, and a folder; stopped and removed in the end."""
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        directory = Path(name)
        kafka = KafkaCluster(directory)
        try:
            kafka.run()
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
            state = NewTopic(STATE.name, 3, 3, config={"cleanup.policy": "compact"})
            wait_for("the topic of snapshots", lambda: _made(admin, state), 60)
            yield kafka, directory
        finally:
            kafka.kill()


def _made(admin: AdminClient, topic: NewTopic) -> bool:
    try:
        admin.create_topics([topic])[topic.topic].result(10)
    except KafkaException:
        return topic.topic in admin.list_topics(timeout=5).topics
    return True
