"""The faults, how they are drawn at random, and how a schedule of them is run."""

import random
import traceback
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from tests.faults.model.bridges import MAX_STEPS, Replica
from tests.faults.model.invariants import Violation
from tests.faults.model.producers import TOPICS, Producer
from tests.faults.model.world import HOUR_SECONDS, MODES, Operation, Setting, World

MAX_PARTITIONS: Final = 6
LONGEST_WAIT_SECONDS: Final = 40


class Operations:
    """Applies operations to a world; those that make no sense there do nothing."""

    def __init__(self, world: World) -> None:
        self._world = world

    def apply(self, operation: Operation) -> None:
        """Apply one operation and check the exposed values at once."""
        getattr(self, operation.name)(operation.which, operation.amount)
        self._world.look()

    def wait(self, _which: int, amount: int) -> None:
        """Let time pass."""
        self._world.wait(amount)

    def kill(self, which: int, _amount: int) -> None:
        """`kill -9` of a bridge."""
        self._replica(which).kill()

    def start(self, which: int, _amount: int) -> None:
        """A bridge starts, and joins."""
        self._replica(which).start()

    def leave(self, which: int, _amount: int) -> None:
        """A bridge stops in good order."""
        self._replica(which).leave()

    def suspend(self, which: int, _amount: int) -> None:
        """SIGSTOP of a bridge."""
        self._replica(which).suspend()

    def resume(self, which: int, _amount: int) -> None:
        """SIGCONT; it is scraped before it has read anything."""
        self._replica(which).resume()

    def slow(self, which: int, amount: int) -> None:
        """A bridge polls once to three times in a turn, and lags."""
        self._replica(which).polls = 1 + amount % 3

    def fast(self, which: int, _amount: int) -> None:
        """A bridge reads as fast as it can."""
        self._replica(which).polls = MAX_STEPS

    def bridge_clock(self, which: int, amount: int) -> None:
        """A bridge's time of day jumps by an hour, or back."""
        self._replica(which).clock.offset_ns = round((amount % 3 - 1) * HOUR_SECONDS * 1e9)

    def grow(self, which: int, amount: int) -> None:
        """Partitions are added, so that keys move."""
        cluster, topic = self._world.cluster, TOPICS[which % 2]
        there = cluster.partitions(topic)
        if there:
            cluster.create(topic, min(MAX_PARTITIONS, there + 1 + amount % 3))

    def delete(self, which: int, _amount: int) -> None:
        """A topic is deleted."""
        self._world.cluster.delete(TOPICS[which % 2])

    def create(self, which: int, amount: int) -> None:
        """A deleted topic is made again."""
        topic = TOPICS[which % 2]
        if not self._world.cluster.partitions(topic):
            self._world.cluster.create(topic, 1 + amount % 3)

    def brokers_gone(self, _which: int, _amount: int) -> None:
        """No broker answers."""
        self._world.cluster.answers = False

    def brokers_back(self, _which: int, _amount: int) -> None:
        """Brokers answer again."""
        self._world.cluster.answers = True

    def leader_lost(self, which: int, amount: int) -> None:
        """A partition has no leader."""
        keys = sorted(self._world.cluster.logs)
        if keys:
            self._world.cluster.leaderless.add(keys[(which + amount) % len(keys)])

    def leaders_back(self, _which: int, _amount: int) -> None:
        """Every partition has a leader."""
        self._world.cluster.leaderless.clear()

    def clock(self, which: int, amount: int) -> None:
        """A producer's clock jumps by an hour, or is put right."""
        producer = self._producer(which)
        producer.clock_seconds = (amount % 3 - 1) * HOUR_SECONDS

    def restart(self, which: int, amount: int) -> None:
        """A producer is restarted, with the same resource attributes or with others."""
        producer = self._producer(which)
        producer.restart(pid=len(producer.runs) if amount % 2 else None)

    def twin(self, which: int, amount: int) -> None:
        """Another instance begins under the same name."""
        producer = self._producer(which)
        if len(producer.alive) == 1:
            producer.begin(len(producer.runs) if amount % 2 else None)

    def untwin(self, which: int, _amount: int) -> None:
        """The other instance ends."""
        del self._producer(which).alive[1:]

    def silence(self, which: int, _amount: int) -> None:
        """A producer writes nothing for a while."""
        self._producer(which).silent = True

    def speak(self, which: int, _amount: int) -> None:
        """It writes again."""
        self._producer(which).silent = False

    def duplicates(self, which: int, amount: int) -> None:
        """A producer sends its last messages again."""
        self._producer(which).send_again(1 + amount % 12)

    def reorder(self, which: int, amount: int) -> None:
        """A producer's next messages arrive late, the last one first."""
        self._producer(which).hold = 2 + amount % 5

    def partitioner(self, which: int, amount: int) -> None:
        """A producer is rewritten with another partitioner, so that its key moves."""
        self._producer(which).salt = amount

    def tombstone(self, which: int, amount: int) -> None:
        """A tombstone ends the series of a producer's key in one topic."""
        self._producer(which).bury(TOPICS[amount % 2])

    def unkeyed(self, which: int, _amount: int) -> None:
        """A producer sends messages without a key, to all partitions in turn; a group of replicas would refuse them."""
        self._producer(which).unkeyed = self._world.group is None

    def keyed(self, which: int, _amount: int) -> None:
        """It sends messages with its key again."""
        self._producer(which).unkeyed = False

    def poison(self, which: int, amount: int) -> None:
        """Messages that cannot be decoded."""
        cluster = self._world.cluster
        topic = TOPICS[which % 2]
        if cluster.partitions(topic):
            cluster.write((topic, amount % cluster.partitions(topic)), b"\xff\x07poison" * (1 + amount % 3), b"poison")

    def _replica(self, which: int) -> Replica:
        return self._world.replicas[which % len(self._world.replicas)]

    def _producer(self, which: int) -> Producer:
        return self._world.producers[which % len(self._world.producers)]


WEIGHTS: Final = {
    "kill": 3, "start": 6, "leave": 3, "suspend": 3, "resume": 4, "slow": 2, "fast": 2, "bridge_clock": 1,
    "grow": 3, "delete": 1, "create": 3, "brokers_gone": 1, "brokers_back": 3, "leader_lost": 1, "leaders_back": 3,
    "clock": 2, "restart": 3, "twin": 1, "untwin": 2, "silence": 1, "speak": 2,
    "duplicates": 2, "reorder": 2, "partitioner": 1, "poison": 1,
}  # fmt: skip
"""How often each operation is drawn; what ends a fault is drawn more often than what begins it."""
ON_REQUEST: Final = {"tombstone": 2, "unkeyed": 2, "keyed": 3}
"""Operations that are drawn only where they are named, so that a seed without them still gives the same schedules."""


@dataclass(frozen=True)
class Schedule:
    """A setting and operations; running it again gives the same result."""

    setting: Setting
    operations: tuple[Operation, ...]

    @classmethod
    def drawn(cls, seed: str, *, without: Sequence[str] = (), only: Sequence[str] = ()) -> "Schedule":
        """A schedule, the same for the same seed.

        Args:
            seed: Any text.
            without: Operations to leave out after drawing; the others stay as they are.
            only: Operations to draw from, besides waiting; all of `WEIGHTS` if empty.
        """
        draw = random.Random(seed)
        weights = {name: weight for name, weight in {**WEIGHTS, **ON_REQUEST}.items() if name in (only or WEIGHTS)}
        mode = draw.choice(MODES)
        setting = Setting(mode, draw.randint(1, 3), draw.randint(1, 3), draw.randint(1, 3), draw.choice((2, 5, 50)))
        operations: list[Operation] = []
        for _ in range(draw.randint(3, 10)):
            (name,) = draw.choices(list(weights), list(weights.values()))
            operations.append(Operation(name, draw.randrange(6), draw.randrange(12)))
            if draw.random() < 0.7:
                operations.append(Operation("wait", 0, draw.choice((2, 4, 8, 16, LONGEST_WAIT_SECONDS))))
        return cls(setting, tuple(one for one in operations if one.name not in without))

    def run(self) -> None:
        """Run it.

        Raises:
            Violation: An invariant does not hold.
        """
        world = World(self.setting)
        operations = Operations(world)
        for operation in self.operations:
            operations.apply(operation)
        world.settle()

    def finding(self) -> tuple[str, str]:
        """Run it: which invariant does not hold, and how it was seen; empty where all hold.

        An exception out of the bridge is a finding, too: its consuming thread would have ended.
        """
        try:
            self.run()
        except Violation as violation:
            return violation.kind, str(violation)
        except Exception as error:  # noqa: BLE001  whatever it is, it would have ended the bridge
            return f"the bridge fails with {type(error).__name__}", traceback.format_exc(limit=-4)
        return "", ""

    def has(self, names: Collection[str]) -> bool:
        """Whether one of its operations has one of these names."""
        return any(operation.name in names for operation in self.operations)

    def with_operations(self, kept: Sequence[Operation]) -> "Schedule":
        """The same setting with other operations."""
        return Schedule(self.setting, tuple(kept))

    def plain(self) -> dict[str, Any]:
        """This schedule as values that JSON can hold."""
        return {"setting": asdict(self.setting), "operations": [list(one) for one in self.operations]}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> "Schedule":
        """The schedule that `plain` gave."""
        return cls(Setting(**plain["setting"]), tuple(Operation(*one) for one in plain["operations"]))
