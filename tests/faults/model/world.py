"""Model of a cluster with bridges: applies a schedule, lets time pass, checks the exposed values at each step."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from tests.faults.model.bridges import MAX_STEPS, TTL_SECONDS, Mode, Replica
from tests.faults.model.cluster import Cluster, Group
from tests.faults.model.invariants import INTERVAL_SECONDS, Violation, Watcher
from tests.faults.model.producers import TOPICS, Named, Producer

MODES: Final[tuple[Mode, ...]] = ("group", "group", "group", "replica")
"""One is drawn for each schedule; most faults are those of a group."""
WARM_UP_SECONDS = 30.0
SETTLE_SECONDS = TTL_SECONDS + 40.0
"""After the last fault, the truth must be exposed within this: a series that another one hides lasts a time-to-live."""
STAY_TURNS = 2
HOUR_SECONDS = 3600.0


class Operation(NamedTuple):
    """One fault, or some time.

    Attributes:
        name: A method of `Operations`.
        which: Which replica, producer or partition; any number.
        amount: Seconds, messages or a variant, as the operation defines.
    """

    name: str
    which: int = 0
    amount: int = 0


@dataclass(frozen=True)
class Setting:
    """The setting that a schedule begins with.

    Attributes:
        mode: `bridge.mode`.
        replicas: How many bridges there may be; all run at the start.
        producers: How many producers write.
        partitions: Of each topic.
        at_once: Messages of a partition that one poll gives.
    """

    mode: Mode = "group"
    replicas: int = 2
    producers: int = 3
    partitions: int = 2
    at_once: int = 50


class World:
    """The model's state.

    Attributes:
        cluster: Kafka.
        replicas: Where bridges run.
        producers: Who writes.
        watcher: Who scrapes and judges.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.cluster = Cluster()
        for topic in TOPICS:
            self.cluster.create(topic, setting.partitions)
        self.group = Group(self.cluster, TOPICS) if setting.mode == "group" else None
        self.replicas = [
            Replica(self.cluster, number, setting.replicas, setting.mode, self.group, setting.at_once)
            for number in range(setting.replicas)
        ]
        self.producers = [Producer(self.cluster, number) for number in range(setting.producers)]
        self.watcher = Watcher(self.replicas, self.producers)
        for replica in self.replicas:
            replica.start()
        self.wait(WARM_UP_SECONDS)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(max(1, round(seconds / INTERVAL_SECONDS))):
            self.turn()

    def turn(self) -> dict[int, dict[Named, float]]:
        """One interval: producers write, bridges read, everything is scraped; what each replica exposes in the end."""
        self.cluster.clock.seconds += INTERVAL_SECONDS
        for producer in self.producers:
            producer.write()
            producer.release_when_due()
        self.cluster.flush()
        if self.group is not None:
            self.group.tick()
        for replica in self.replicas:
            self._read(replica)
        pages = {replica.number: self.watcher.scrape(replica) for replica in self.replicas if replica.running}
        self.watcher.at_once(pages)
        return pages

    def look(self) -> None:
        """Scrape everything between two turns, before any bridge has read."""
        pages = {replica.number: self.watcher.scrape(replica) for replica in self.replicas if replica.running}
        self.watcher.at_once(pages)

    def settle(self) -> None:
        """End all faults, and wait for the truth.

        Raises:
            Violation: It is not exposed in time, or does not stay.
        """
        self.calm()
        deadline = self.cluster.clock.seconds + SETTLE_SECONDS
        held = 0
        while held <= STAY_TURNS:
            reason = self.watcher.settled(self.turn())
            held = 0 if reason else held + 1
            if reason and self.cluster.clock.seconds > deadline:
                raise Violation("the totals are not the truth in the end", reason)

    def calm(self) -> None:
        """End all faults."""
        self.cluster.answers = True
        self.cluster.leaderless.clear()
        for topic in TOPICS:
            if not self.cluster.partitions(topic):
                self.cluster.create(topic, self.setting.partitions)
        for producer in self.producers:
            producer.calm()
        for replica in self.replicas:
            replica.clock.offset_ns, replica.polls = 0, MAX_STEPS
            if replica.suspended:
                replica.resume()
        self.look()
        for replica in self.replicas:
            if self.setting.mode != "group" or not any(one.running for one in self.replicas):
                replica.start()

    def _read(self, replica: Replica) -> None:
        for _ in range(replica.polls if replica.running else 0):
            more = replica.step()
            if more and replica.polls < MAX_STEPS:
                self.watcher.scrape(replica)
            elif not more:
                break
