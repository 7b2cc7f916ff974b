"""Schedules with real processes: drawn, run one after the other on one cluster, and shortened where one fails."""

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from tests.faults.invariants import Violation, Watcher
from tests.faults.operations import Operations, Schedule
from tests.faults.producers import TOPICS, Named, Producer
from tests.faults.real import TTL_SECONDS, RealCluster, RealReplica, three_nodes
from tests.faults.shrink import shrunk
from tests.faults.world import MODES, Operation, Setting
from tests.service.servers import KafkaCluster, KafkaServer, wait_for

TURN_SECONDS: Final = 1.0
SETTLE_SECONDS: Final = 30.0
LONGEST_SECONDS: Final = 120.0
START_SECONDS: Final = 60.0
PARTITIONS: Final = 2
WEIGHTS: Final = {
    "kill": 3, "start": 5, "leave": 2, "roll": 2, "suspend": 3, "resume": 4, "bridge_clock": 1, "grow": 3,
    "delete": 1, "create": 3, "leader_lost": 1, "leaders_back": 3, "clock": 1, "restart": 2, "twin": 1, "untwin": 2,
    "silence": 1, "speak": 2, "duplicates": 2, "reorder": 2, "partitioner": 1, "poison": 1,
}  # fmt: skip


class RealWorld:
    """What `world.World` is to the model: time is real, and bridges read by themselves."""

    def __init__(self, setting: Setting, kafka: KafkaCluster, directory: Path, tag: str) -> None:
        self.setting, self.kafka = setting, kafka
        self.cluster = cast("Any", RealCluster(kafka, tag))
        for topic in TOPICS:
            self.cluster.create(topic, setting.partitions)
        self.producers = [Producer(self.cluster, number) for number in range(setting.producers)]
        self.replicas: list[Any] = [
            RealReplica(self.cluster, number, setting.replicas, setting.mode, directory)
            for number in range(setting.replicas)
        ]
        self.watcher = Watcher(
            self.replicas, self.producers, grace_seconds=TTL_SECONDS, lifetime_seconds=TTL_SECONDS + 12
        )

    def begin(self) -> None:
        """Start all bridges, and wait until they are ready."""
        for replica in self.replicas:
            replica.start()
        wait_for("ready bridges", lambda: all(one.ready() for one in self.replicas), START_SECONDS)
        self.wait(5)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        end = time.monotonic() + seconds
        while True:
            self.turn()
            if time.monotonic() >= end:
                return

    def turn(self) -> dict[int, dict[Named, float]]:
        """One second: producers write, and everything is scraped."""
        began = time.monotonic()
        for producer in self.producers:
            producer.write()
            producer.release_when_due()
        self.cluster.flush()
        pages = self.look()
        while time.monotonic() < began + TURN_SECONDS:
            time.sleep(0.05)
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
        deadline = time.monotonic() + SETTLE_SECONDS
        while reason := self._differs():
            if time.monotonic() > deadline:
                raise Violation("the totals are not the truth in the end", reason)
            self.turn()

    def calm(self) -> None:
        """End all faults, and wait for bridges that were not running to be ready."""
        for node in self.kafka.nodes:
            revive(node)
        for topic in TOPICS:
            self.cluster.create(topic, max(self.setting.partitions, self.cluster.partitions(topic)))
        for producer in self.producers:
            producer.calm()
        for replica in self.replicas:
            replica.ahead_seconds = 0.0
            replica.resume()
        self.look()
        for replica in self.replicas:
            if self.setting.mode != "group" or not any(one.server for one in self.replicas):
                replica.start()
        started = [one for one in self.replicas if one.server]
        end = time.monotonic() + START_SECONDS
        while not all(one.ready() for one in started):
            if time.monotonic() > end:
                raise Violation(
                    "a bridge does not become ready", str([one.number for one in started if not one.ready()])
                )
            self.turn()

    def close(self) -> None:
        """Stop everything of this schedule."""
        for replica in self.replicas:
            replica.kill()
        self.cluster.close()

    def _differs(self) -> str:
        """Stop writing for a moment, so that what is scraped can be compared."""
        for _ in range(10):
            time.sleep(0.3)
            self.cluster.flush()
            reason = self.watcher.settled(self.look())
            if not reason:
                return ""
        return reason

    def _pages(self) -> dict[int, dict[Named, float]]:
        running = [replica for replica in self.replicas if replica.running]
        for replica in running:
            replica.healthy()
        return {replica.number: self.watcher.scrape(replica) for replica in running}


class RealOperations(Operations):
    """Those that are done otherwise with real processes."""

    def __init__(self, world: RealWorld) -> None:
        super().__init__(cast("Any", world))
        self._real = world

    def roll(self, _which: int, _amount: int) -> None:
        """Every bridge is restarted, one after the other."""
        for replica in self._real.replicas:
            if replica.server and not replica.suspended:
                replica.leave()
                replica.start()
                end = time.monotonic() + START_SECONDS
                while not replica.ready() and time.monotonic() < end:
                    self._real.turn()

    def bridge_clock(self, which: int, amount: int) -> None:
        """The next bridge that starts here has a clock that is an hour off."""
        self._real.replicas[which % len(self._real.replicas)].ahead_seconds = (amount % 3 - 1) * 3600.0

    def leader_lost(self, which: int, _amount: int) -> None:
        """`kill -9` of a broker, of at most one at a time."""
        nodes = self._real.kafka.nodes
        if all(node.poll() is None for node in nodes):
            nodes[which % len(nodes)].kill()

    def leaders_back(self, _which: int, _amount: int) -> None:
        """Every broker runs."""
        for node in self._real.kafka.nodes:
            revive(node)

    def poison(self, which: int, amount: int) -> None:
        """Messages that cannot be decoded."""
        cluster, topic = self._real.cluster, TOPICS[which % 2]
        if cluster.partitions(topic):
            cluster.write((topic, amount % cluster.partitions(topic)), b"\xff\x07poison", b"poison")


def revive(node: KafkaServer) -> None:
    """Start a node that was killed, and wait for it."""
    if node.poll() is not None:
        node.run()


def drawn(seed: str) -> Schedule:
    """A real schedule, the same for the same seed."""
    draw = random.Random(f"real/{seed}")
    setting = Setting(draw.choice(MODES), 2, 3, PARTITIONS)
    operations: list[Operation] = []
    for _ in range(draw.randint(3, 6)):
        (name,) = draw.choices(list(WEIGHTS), list(WEIGHTS.values()))
        operations.append(Operation(name, draw.randrange(6), draw.randrange(12)))
        operations.append(Operation("wait", 0, draw.choice((1, 2, 4, 8, 14))))
    return Schedule(setting, tuple(operations))


def finding(schedule: Schedule, kafka: KafkaCluster, directory: Path, tag: str) -> tuple[str, str]:
    """Run a schedule: which invariant does not hold, and how it was seen; empty where all hold."""
    folder = directory / tag
    folder.mkdir()
    world: RealWorld | None = None
    try:
        world = RealWorld(schedule.setting, kafka, folder, tag)
        world.begin()
        operations = RealOperations(world)
        began = time.monotonic()
        for operation in schedule.operations:
            if time.monotonic() - began < LONGEST_SECONDS - SETTLE_SECONDS:
                operations.apply(operation)
        world.settle()
    except Violation as violation:
        return violation.kind, str(violation)
    except AssertionError as error:
        return "a server fails", str(error)
    finally:
        if world is not None:
            world.close()
        for node in kafka.nodes:
            revive(node)
    return "", ""


def run_real(count: int, *, seed: str, first: int, say: Callable[[str], None], shorten: bool = True) -> dict[str, Any]:
    """Run real schedules; what is to be recorded."""
    began, found, findings = time.monotonic(), Counter[str](), []
    runs = 0

    def run(schedule: Schedule) -> tuple[str, str]:
        nonlocal runs
        runs += 1
        return finding(schedule, kafka, directory, f"{runs}-{time.time_ns() % 1_000_000}")

    with three_nodes() as (kafka, directory):
        for number in range(first, first + count):
            schedule = drawn(f"{seed}/{number}")
            kind, detail = run(schedule)
            say(f"real {number}: {kind or 'every invariant holds'} {detail[:300]} ({time.monotonic() - began:.0f} s)")
            if kind:
                found[kind] += 1
                short = shortened(schedule, kind, run) if shorten else schedule
                say(f"  {short.plain()}")
                findings.append({"number": number, "kind": kind, "detail": detail, "schedule": short.plain()})
    seconds = round(time.monotonic() - began)
    return {"level": "real", "done": count, "runs": runs, "seconds": seconds, "found": found, "findings": findings}


def shortened(schedule: Schedule, kind: str, run: Callable[[Schedule], tuple[str, str]]) -> Schedule:
    """A schedule with operations left out; each try takes a minute, so nothing else is made smaller."""

    def still(few: Sequence[Operation]) -> bool:
        return run(replace(schedule, operations=tuple(few)))[0] == kind

    return replace(schedule, operations=tuple(shrunk(schedule.operations, still, smaller=lambda _: iter(()))))
