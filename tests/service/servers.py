"""Real servers for the service tests: started on loopback and free ports, stopped with the test."""

import base64
import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from confluent_kafka.admin import AdminClient
from tests.service import require
from tests.service.kafka_installation import KAFKA_PROJECT, bootstrap_checkpoint, class_archive, kafka_libraries
from tests.support import ports
from tests.support.waiting import LONGEST_SECONDS

T = TypeVar("T")
free_ports = ports.free_ports
ANSWER_SECONDS: Final = 60.0
START_SECONDS: Final = 180.0
"""A server starts in seconds; a machine of CI stood still for two minutes while one did."""
OFFSETS_PARTITIONS = 4
"""Partitions of `__consumer_offsets`, which decide what node coordinates a group."""


def wait_for(what: str, check: Callable[[], T | None], timeout_seconds: float = LONGEST_SECONDS) -> T:
    """Poll until `check` gives something that is true; its last value is in the error.

    A check may be a page that is drawn and read, so a long wait polls less often: at most a twentieth of it is lost.
    """
    began = time.monotonic()
    deadline = began + timeout_seconds
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout_seconds} s; last seen: {value!r}")
        time.sleep(min(max(0.05, (time.monotonic() - began) / 20), 0.3))


def get(url: str, timeout_seconds: float = ANSWER_SECONDS, headers: Mapping[str, str] | None = None) -> str:
    """The body at a URL; raises OSError for anything but a whole answer with 2xx."""
    request = urllib.request.Request(url, headers=dict(headers or {}))  # noqa: S310  loopback only
    try:
        with urllib.request.urlopen(request, timeout=timeout_seconds) as answer:  # noqa: S310
            return str(answer.read().decode())
    except http.client.HTTPException as error:  # the server was killed within its answer
        raise ConnectionError(f"{url}: {error!r}") from error


def answers(url: str, timeout_seconds: float = 2) -> bool:
    """Whether a URL answers 2xx now."""
    try:
        get(url, timeout_seconds)
    except OSError:
        return False
    return True


class ServerProcess:
    """One server as a child process, with its output in a file."""

    def __init__(
        self, name: str, command: Sequence[str], directory: Path, environ: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = directory / f"{name}.log"
        self._environ = {**os.environ, **(environ or {})}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, ready: Callable[[], bool] | None = None, timeout_seconds: float = START_SECONDS) -> Self:
        """Start, and wait until `ready` says so."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=subprocess.STDOUT, env=self._environ, start_new_session=True
            )
        if ready is not None:
            self._wait(ready, timeout_seconds)
        return self

    def _wait(self, ready: Callable[[], bool], timeout_seconds: float) -> None:
        deadline = time.monotonic() + timeout_seconds
        while not ready():
            code = self.poll()
            if code is not None or time.monotonic() > deadline:
                state = f"exited with {code}" if code is not None else f"not ready within {timeout_seconds} s"
                raise AssertionError(f"{self.name} {state}:\n{self.tail()}")
            time.sleep(0.1)

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        return None if self.process is None else self.process.poll()

    def tail(self, characters: int = 4000) -> str:
        """The end of its output."""
        return self.log.read_text(errors="replace")[-characters:] if self.log.exists() else ""

    def kill(self) -> None:
        """`kill -9`, as a crash would."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(LONGEST_SECONDS)

    def stop(self, timeout_seconds: float = LONGEST_SECONDS) -> int:
        """SIGTERM; its exit code. Killed, and said so, when it does not stop."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout_seconds)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"{self.name} did not stop within {timeout_seconds} s:\n{self.tail()}") from None
        return int(self.process.returncode)


class KafkaServer(ServerProcess):
    """One Apache Kafka node in KRaft mode, controller and broker in one; by itself, or one of a `KafkaCluster`."""

    def __init__(
        self,
        directory: Path,
        *,
        node: int = 1,
        controllers: Sequence[int] = (),
        cluster: str = "",
        heap: str = "640m",
        archive: Path | None = None,
    ) -> None:
        """Prepare a node.

        Args:
            directory: For its files.
            node: Its number.
            controllers: Ports of all nodes' controllers; empty for a node by itself.
            cluster: The cluster's identifier.
            heap: Limit of Java's heap.
            archive: Where it writes an archive of its classes at its end, in place of using one.
        """
        java = require.binary("java", "openjdk-17-jre-headless")
        libraries = kafka_libraries()
        self.node = node
        self.port, self.controller_port = free_ports(2)
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self._cluster = cluster or cluster_id()
        self._java = [java, f"-Xmx{heap}", "-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._java += _class_sharing(java, archive)
        self._java += [f"-Dlog4j2.configurationFile={KAFKA_PROJECT / 'log4j2.yaml'}", "-cp", f"{libraries}/*"]
        name = "kafka" if not controllers else f"kafka-{node}"
        self._properties = directory / f"{name}.properties"
        data = directory / f"{name}-data"
        self._properties.write_text(_kafka_properties(self.port, node, controllers or [self.controller_port], data))
        super().__init__(name, [*self._java, "kafka.Kafka", str(self._properties)], directory)
        self._format(data)
        if archive is not None:
            self.command.insert(1, f"-XX:ArchiveClassesAtExit={archive}")

    def _format(self, data: Path) -> None:
        """Do what `StorageTool format` does, for which Java would run for 0.6 s of processor time."""

        def make(path: Path) -> None:
            tool = [*self._java, "kafka.tools.StorageTool", "format", "-t", cluster_id(), "-c", str(self._properties)]
            done = subprocess.run(tool, check=False, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            shutil.copy(data / "bootstrap.checkpoint", path)

        checkpoint = bootstrap_checkpoint(make)
        data.mkdir(exist_ok=True)
        shutil.copy(checkpoint, data / "bootstrap.checkpoint")
        identity = {"version": 1, "node.id": self.node, "cluster.id": self._cluster, "directory.id": cluster_id()}
        (data / "meta.properties").write_text("".join(f"{name}={value}\n" for name, value in identity.items()))

    def ready(self) -> bool:
        """Whether it answers metadata requests."""
        client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        try:
            return bool(client.list_topics(timeout=2).brokers)
        except Exception:  # noqa: BLE001  the client raises KafkaException of many kinds while the broker starts
            return False

    def run(self) -> Self:
        """Start and wait."""
        return self.start(self.ready)


SHARED_PROPERTIES: Final = """
broker.session.timeout.ms=3600000
broker.heartbeat.interval.ms=5000
metadata.max.idle.interval.ms=0
"""
"""Settings of a single node that the tests may freeze; of two lines with one name, Kafka uses the last. A frozen node
must not count as dead. A single node needs neither frequent heartbeats nor empty metadata records: without them an idle
one takes half of the processor time."""


class SharedKafka(KafkaServer):
    """A node that can be frozen while no test uses it: then it takes no processor time, and clients wait."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        with self._properties.open("a") as file:
            file.write(SHARED_PROPERTIES)

    def freeze(self) -> None:
        """Stop it until `thaw`, if it runs."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)


def _class_sharing(java: str, archive: Path | None) -> list[str]:
    """Options with which Java uses the archive of Kafka's classes; none while the archive is made."""
    found = None if archive is not None else class_archive(java, _write_archive)
    return [] if found is None else [f"-XX:SharedArchiveFile={found}"]


def _write_archive(archive: Path) -> None:
    KafkaServer(archive.parent, archive=archive).run().stop(60)


class KafkaCluster:
    """Three nodes, of which any one may die: topics have three replicas, and writes need two."""

    def __init__(self, directory: Path) -> None:
        controllers, cluster = free_ports(3), cluster_id()
        self.nodes = [
            KafkaServer(directory, node=node, controllers=controllers, cluster=cluster, heap="320m")
            for node in (1, 2, 3)
        ]
        self.bootstrap_servers = ",".join(node.bootstrap_servers for node in self.nodes)

    def run(self) -> Self:
        """Start all and wait until each knows the others."""
        for node in self.nodes:
            node.start()
        wait_for("three brokers", lambda: self._brokers() == len(self.nodes), START_SECONDS)
        return self

    def leader(self, topic: str, partition: int) -> KafkaServer:
        """The node that leads a partition now."""
        found = self._client().list_topics(topic, timeout=LONGEST_SECONDS).topics[topic].partitions[partition].leader
        return next(node for node in self.nodes if node.node == found)

    def coordinator(self, group: str) -> KafkaServer:
        """The node that coordinates a group with members; Kafka takes the partition from Java's hash of its name."""
        value = 0
        for character in group:
            value = (31 * value + ord(character)) % 2**32
        return self.leader("__consumer_offsets", abs(value - 2**32 * (value >= 2**31)) % OFFSETS_PARTITIONS)

    def kill(self) -> None:
        """`kill -9` of all."""
        for node in self.nodes:
            node.kill()

    def _client(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def _brokers(self) -> int:
        try:
            return len(self._client().list_topics(timeout=2).brokers)
        except Exception:  # noqa: BLE001  as in `KafkaServer.ready`
            return 0


def cluster_id() -> str:
    """An identifier of a new cluster; the first byte 0 makes it begin with "A", as a dash would look like an option."""
    return base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


def _kafka_properties(port: int, node: int, controllers: Sequence[int], data: Path) -> str:
    voters = ",".join(f"{number}@127.0.0.1:{at}" for number, at in enumerate(controllers, start=1))
    replicas = len(controllers)
    return f"""
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controllers[node - 1]}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
default.replication.factor={replicas}
min.insync.replicas={min(2, replicas)}
offsets.topic.replication.factor={replicas}
offsets.topic.num.partitions={OFFSETS_PARTITIONS}
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={min(2, replicas)}
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr={min(2, replicas)}
group.initial.rebalance.delay.ms=0
group.consumer.min.session.timeout.ms=3000
group.consumer.session.timeout.ms={6_000 if replicas > 1 else 30_000}
group.consumer.min.heartbeat.interval.ms=500
group.consumer.heartbeat.interval.ms=1000
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
auto.create.topics.enable=false
"""


class PrometheusServer(ServerProcess):
    """One Prometheus, with the configuration it is given: Debian's, or another one that a caller has (`built.py`)."""

    def __init__(
        self, directory: Path, configuration: Path, *, program: Path | None = None, options: Sequence[str] = ()
    ) -> None:
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        self.url = f"http://{self.address}"
        command = [str(program or require.binary("prometheus", "prometheus")), f"--config.file={configuration}"]
        command += [f"--storage.tsdb.path={directory / 'tsdb'}", f"--web.listen-address={self.address}"]
        command += ["--web.enable-lifecycle", "--log.level=warn", *options]
        super().__init__("prometheus", command, directory, require.SELDOM_COLLECTING)

    def run(self) -> Self:
        """Start and wait."""
        return self.start(lambda: answers(f"{self.url}/-/ready"))

    def api(self, path: str, **parameters: str) -> Any:
        """The `data` of an API answer."""
        query = urllib.parse.urlencode(parameters)
        return json.loads(get(f"{self.url}/api/v1/{path}?{query}"))["data"]

    def query(self, expression: str, time_seconds: float | None = None) -> list[tuple[dict[str, str], float]]:
        """An instant vector: labels and value of each series."""
        at = {} if time_seconds is None else {"time": f"{time_seconds:.3f}"}
        result = self.api("query", query=expression, **at)["result"]
        return [(item["metric"], float(item["value"][1])) for item in result]

    def scalar(self, expression: str, time_seconds: float | None = None) -> float | None:
        """The one value an expression gives, or None where it gives none."""
        values = self.query(expression, time_seconds)
        assert len(values) <= 1, f"{expression} gave {len(values)} series"
        return values[0][1] if values else None

    def samples(self, selector: str, range_text: str = "1h") -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """Raw samples of the series a selector gives."""
        result = self.api("query", query=f"{selector}[{range_text}]")["result"]
        return [(item["metric"], [(float(t), float(v)) for t, v in item["values"]]) for item in result]


class AlertmanagerServer(ServerProcess):
    """One Alertmanager, with the configuration it is given."""

    def __init__(self, directory: Path, configuration: Path) -> None:
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        self.url = f"http://{self.address}"
        command = [require.binary("prometheus-alertmanager", "prometheus-alertmanager")]
        command += [f"--config.file={configuration}", f"--storage.path={directory / 'alertmanager'}"]
        command += [f"--web.listen-address={self.address}", "--cluster.listen-address=", "--log.level=warn"]
        super().__init__("alertmanager", command, directory)

    def run(self) -> Self:
        """Start and wait."""
        return self.start(lambda: answers(f"{self.url}/-/ready"))


def note_logs(error: BaseException, *servers: ServerProcess) -> None:
    """Add the end of what servers logged to an error: pytest shows it with the test that failed."""
    for server in servers:
        error.add_note(f"{server.name}:\n{server.tail()}")


@contextlib.contextmanager
def stopping(*servers: ServerProcess) -> Iterator[None]:
    """Kill what still runs when the block ends, whatever happened in it; an error gets the end of what they logged."""
    try:
        yield
    except BaseException as error:
        note_logs(error, *servers)
        raise
    finally:
        for server in reversed(servers):
            server.kill()
