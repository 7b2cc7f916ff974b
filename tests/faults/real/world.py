"""Everything of one real schedule together: as `world.World` is to the model, with real time and real processes."""

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from tests.faults.model.invariants import Violation, Watcher
from tests.faults.model.producers import KERNELS, RUNS, TOPICS, Named, Producer
from tests.faults.model.world import Setting
from tests.faults.real.bridge import RealReplica, Surroundings
from tests.faults.real.disk import SmallDisk, small_disk_obstacle
from tests.faults.real.exporter import TOPICS as EXPORTER_TOPICS
from tests.faults.real.exporter import RealExporter, exporter_of
from tests.faults.real.kafka import TTL_SECONDS, RealCluster
from tests.faults.real.waiting import Patience
from tests.faults.real.web_door import Door
from tests.service.nursery import Nursery
from tests.service.servers import KafkaCluster, KafkaServer, ServerProcess

TURN_SECONDS: Final = 1.0
SETTLE_SECONDS: Final = 30.0
START_SECONDS: Final = 60.0
WARM_UP_SECONDS: Final = 5.0
SILENCE_SECONDS: Final = 1.5
"""How long producers pause for a comparison. A bridge holds a series of a topic that has grown for eight of its
intervals: with a pause of 3 s, and a turn, that alone was longer than `SETTLE_SECONDS`."""
TAKEOVER_SECONDS: Final = 12.0
"""A producer that was restarted with other attributes takes its series over within this."""


@dataclass(frozen=True)
class Scene:
    """Processes and folders that the schedules share.

    Attributes:
        kafka: Three nodes.
        directory: For files.
        nursery: Starts daemons.
        certificate: Certificate and key of bridges that serve TLS.
        clocks: The library of `skewed_clock`.
        protocol: Of the bridges' group; see `Surroundings`.
        defect: What is put back in bridges; see `Surroundings`.
    """

    kafka: KafkaCluster
    directory: Path
    nursery: Nursery
    certificate: tuple[Path, Path]
    clocks: Path
    protocol: str
    defect: str = ""


class RealWorld:
    """The state of one schedule; a context manager that stops all of it.

    Attributes:
        exporter: None in schedules without one.
        longest_pause_seconds: The longest time in which no producer has written: a busy machine can make it longer than
            a time-to-live, and then series end, rightly.
    """

    def __init__(self, setting: Setting, scene: Scene, tag: str, names: frozenset[str]) -> None:
        """Start nothing yet.

        Args:
            setting: How many of what.
            scene: Where.
            tag: Makes names of this schedule its own.
            names: Operations that it will have.
        """
        self.setting, self.kafka, self._scene = setting, scene.kafka, scene
        self.longest_pause_seconds, self._wrote_seconds = 0.0, time.monotonic()
        self._breaks_nodes = bool(names & BROKER_OPERATIONS)
        self.directory = scene.directory / tag
        self.directory.mkdir()
        has_exporter = bool(names & EXPORTER_OPERATIONS) and not small_disk_obstacle()
        # The exporter's topics are stamped: beside them a bridge with a wrong clock loses those that are not, see
        # "Clocks of producers" in docs/bridge.md.
        stamps = has_exporter and "bridge_clock" in names
        self.cluster = cast("Any", RealCluster(scene.kafka, tag, stamps=stamps))
        for topic in TOPICS:
            self.cluster.create(topic, setting.partitions)
        self.producers = [Producer(self.cluster, number) for number in range(setting.producers)]
        self.exporter: RealExporter | None = None
        with contextlib.ExitStack() as held:
            if has_exporter:
                self.exporter = self._made_exporter(tag, held)
            around = self._surroundings(names)
            self.replicas: list[Any] = [self._replica(number, around) for number in range(setting.replicas)]
            self._held = held.pop_all()
        self.watcher = Watcher(
            self.replicas, self.producers, grace_seconds=TTL_SECONDS, lifetime_seconds=TTL_SECONDS + 12
        )

    def begin(self) -> None:
        """Start all bridges after a first message of each producer, and wait until they are ready."""
        self._write()
        for replica in self.replicas:
            replica.start()
        patience = self.patience(START_SECONDS)
        while not self._begun():
            if patience.ended:
                raise Violation("a bridge does not become ready", "at the start")
        self.wait(WARM_UP_SECONDS)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        end = time.monotonic() + seconds
        while True:
            self.turn()
            if time.monotonic() >= end:
                return

    def meanwhile(self, action: Callable[[], object]) -> None:
        """Do what takes a while, and let producers write: their series would end if they were silent for long."""
        with ThreadPoolExecutor(1) as pool:
            doing = pool.submit(action)
            while wait([doing], TURN_SECONDS).not_done:
                self._write()
        doing.result()

    def revive_nodes(self) -> None:
        """Start the nodes that were killed, and wait for them."""
        for node in self.kafka.nodes:
            self.meanwhile(partial(revive, node))

    def turn(self) -> dict[int, dict[Named, float]]:
        """One second: producers write, and everything is scraped."""
        began = time.monotonic()
        self._write()
        pages = self.look()
        time.sleep(max(0.0, began + TURN_SECONDS - time.monotonic()))
        return pages

    def look(self) -> dict[int, dict[Named, float]]:
        """Scrape everything; a series on two replicas must be there in a second look, too.

        Scrapes are never at the same moment: what moves in between is no fault.
        """
        pages = self._pages()
        try:
            self.watcher.at_once(pages)
        except Violation:
            again = self._pages()
            self.watcher.at_once({number: again[number] for number in again if number in pages})
        return pages

    def settle(self) -> None:
        """End all faults, and wait for the truth.

        Raises:
            Violation: It is not exposed in time.
        """
        self.calm()
        patience = self.patience(SETTLE_SECONDS)
        while reason := self._differs():
            if patience.ended:
                raise Violation("the totals are not the truth in the end", reason)
            self._write()

    def calm(self) -> None:
        """End all faults, and wait for bridges that were not running to be ready."""
        if self._breaks_nodes:
            self.revive_nodes()
        for topic in TOPICS:
            self.cluster.create(topic, max(self.setting.partitions, self.cluster.partitions(topic)))
        for producer in self.producers:
            producer.calm()
        if self.exporter is not None:
            self.meanwhile(self.exporter.calm)
        for replica in self.replicas:
            replica.set_clock(0)
            replica.door.set_right()
            replica.resume()
        self.look()
        for replica in self.replicas:
            if self.setting.mode != "group" or not any(one.server for one in self.replicas):
                replica.start()
        self.ready()

    def ready(self) -> None:
        """Wait until all bridges that were started are ready.

        Raises:
            Violation: One is not, for a minute.
        """
        patience = self.patience(START_SECONDS)
        while late := [one.number for one in self.replicas if one.server and not one.ready()]:
            if patience.ended:
                raise Violation("a bridge does not become ready", str(late))
            self.turn()

    def patience(self, limit_seconds: float) -> Patience:
        """A time limit for work of this schedule's processes, which leaves out their waits for a processor."""

        def servers() -> list[ServerProcess]:
            exporters = [self.exporter] if self.exporter is not None else []
            return [*self.kafka.nodes, *(one.server for one in (*self.replicas, *exporters) if one.server is not None)]

        return Patience(limit_seconds, servers)

    def close(self) -> None:
        """Stop everything of this schedule."""
        for replica in self.replicas:
            replica.kill()
        self._held.close()
        self.cluster.close()

    def floors(self) -> dict[int, float]:
        """Time at which each producer wrote its last value on Kafka; only of producers whose values can be compared."""
        if not self.cluster.delivered() or not self.cluster.partitions(KERNELS):
            return {}
        return {one.number: self._written(one.number, _last(one)) for one in self.producers if self._comparable(one)}

    def _comparable(self, producer: Producer) -> bool:
        run, moved = producer.alive[0], self.cluster.moves.seconds
        new = len(producer.runs) > 1 and run.first_seconds > self.cluster.clock.seconds - TAKEOVER_SECONDS
        disturbed = producer.silent or producer.hold or producer.clock_seconds or len(producer.alive) > 1
        return bool(run.written) and not new and not disturbed and (KERNELS, producer.key) not in moved

    def _written(self, producer: int, value: float) -> float:
        return self.producers[producer].written_seconds.get(value, 0.0)

    def _begun(self) -> bool:
        self.turn()
        return all(one.ready() for one in self.replicas)

    def _write(self) -> None:
        now_seconds = time.monotonic()
        self.longest_pause_seconds = max(self.longest_pause_seconds, now_seconds - self._wrote_seconds)
        self._wrote_seconds = now_seconds
        for producer in self.producers:
            producer.write()
            producer.release_when_due()
        self.cluster.flush()

    def _differs(self) -> str:
        """Stop writing for a moment, so that scraped values can be compared; a longer silence would end series."""
        resumes = time.monotonic() + SILENCE_SECONDS
        while True:
            time.sleep(0.3)
            self.cluster.flush()
            pages = self.look()
            reason = self.watcher.settled(pages)
            if not reason and self.exporter is not None:
                reason = self.exporter.differs({number: self.replicas[number].page for number in pages})
            if not reason or time.monotonic() > resumes:
                return reason

    def _pages(self) -> dict[int, dict[Named, float]]:
        running = [replica for replica in self.replicas if replica.running]
        for replica in running:
            replica.healthy()
        pages = {replica.number: self.watcher.scrape(replica) for replica in running}
        if self.exporter is not None:
            self.exporter.healthy()
            self.exporter.judge({replica.number: replica.page for replica in running})
        return pages

    def _made_exporter(self, tag: str, held: contextlib.ExitStack) -> RealExporter:
        disk = SmallDisk(self.directory / "disk")
        held.callback(disk.close)
        made = exporter_of(
            self.kafka.bootstrap_servers, tag, self.setting.mode, self.directory, disk, self._scene.nursery
        )
        return held.enter_context(made)

    def _surroundings(self, names: frozenset[str]) -> Surroundings:
        scene = self._scene
        around = Surroundings(scene.protocol, scene.nursery, self.directory, self.directory, defect=scene.defect)
        around.clocks = scene.clocks if "bridge_clock" in names else None
        if self.exporter is not None:
            around.topics, around.logs = EXPORTER_TOPICS, self.exporter.disk.folder
        if self.exporter is not None and "disk_full" in names:
            around.environ["NUMBA_CACHE_DIR"] = str(self.exporter.disk.folder / "code")
        return around

    def _replica(self, number: int, around: Surroundings) -> RealReplica:
        certificate = self._scene.certificate if number % 2 else None
        door = Door(self.directory / f"web-{number}.yml", certificate)
        made = RealReplica(self.cluster, number, self.setting.replicas, self.setting.mode, around, door)
        made.floors, made.written = self.floors, self._written
        return made


EXPORTER_OPERATIONS: Final = frozenset({"disk_full", "disk_free", "exporter_kill", "program"})
"""Schedules with one of these have an exporter and a small disk."""
BROKER_OPERATIONS: Final = frozenset({"leader_lost"})
"""They change the nodes that all schedules share."""


def revive(node: KafkaServer) -> None:
    """Start a node that was killed, and wait for it."""
    if node.poll() is None:
        return
    node.start()
    patience = Patience(START_SECONDS, lambda: [node])
    while not node.ready():
        if patience.ended or node.poll() is not None:
            raise AssertionError(f"{node.name} does not start again: {node.tail(1500)}")


def _last(producer: Producer) -> float:
    run = producer.alive[0]
    return RUNS * run.written + run.number
