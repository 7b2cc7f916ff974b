"""Operations of real schedules: those that need other means than in the model, and those that the model has not."""

import random
from typing import Any, Final, cast

from tests.faults.model.operations import Operations, Schedule
from tests.faults.model.producers import KERNELS, TOPICS
from tests.faults.model.world import HOUR_SECONDS, MODES, Operation, Setting
from tests.faults.real.disk import small_disk_obstacle
from tests.faults.real.world import EXPORTER_OPERATIONS, START_SECONDS, RealWorld

PARTITIONS: Final = 2
WEIGHTS: Final = {
    "kill": 3, "start": 5, "leave": 2, "roll": 2, "suspend": 3, "resume": 4, "bridge_clock": 1, "grow": 3,
    "delete": 1, "create": 3, "leader_lost": 1, "leaders_back": 3, "clock": 1, "restart": 2, "twin": 1, "untwin": 2,
    "silence": 1, "speak": 2, "duplicates": 2, "reorder": 2, "partitioner": 1, "poison": 1,
}  # fmt: skip
MORE_WEIGHTS: Final = {
    "web_wrong": 4, "web_right": 2, "disk_full": 4, "disk_free": 2, "exporter_kill": 3,
    "program": 2,
}  # fmt: skip
"""Drawn apart from the others, so that the same seed still draws the same of those."""
WAITS: Final = (1, 2, 4, 8, 14)


class RealOperations(Operations):
    """Applies operations to a real world."""

    def __init__(self, world: RealWorld) -> None:
        super().__init__(cast("Any", world))
        self._real = world

    def leave(self, which: int, _amount: int) -> None:
        """A bridge stops in good order."""
        self._real.meanwhile(self._bridge(which).leave)

    def roll(self, _which: int, _amount: int) -> None:
        """Every bridge is restarted, one after the other."""
        for replica in self._real.replicas:
            if replica.server and not replica.suspended:
                self._restarted(replica)

    def bridge_clock(self, which: int, amount: int) -> None:
        """A bridge's clock jumps by an hour, or back."""
        self._bridge(which).set_clock((amount % 3 - 1) * HOUR_SECONDS)

    def delete(self, which: int, amount: int) -> None:
        """A topic is deleted."""
        if TOPICS[which % 2] == KERNELS:
            self._incomparable(None)
        super().delete(which, amount)

    def clock(self, which: int, amount: int) -> None:
        """A producer's clock jumps by an hour, or is put right."""
        self._incomparable(which % len(self._real.producers))
        super().clock(which, amount)

    def twin(self, which: int, amount: int) -> None:
        """Another instance begins under the same name."""
        self._incomparable(which % len(self._real.producers))
        super().twin(which, amount)

    def leader_lost(self, which: int, _amount: int) -> None:
        """`kill -9` of a broker, of at most one at a time."""
        nodes = self._real.kafka.nodes
        if all(node.poll() is None for node in nodes):
            nodes[which % len(nodes)].kill()

    def leaders_back(self, _which: int, _amount: int) -> None:
        """Every broker runs."""
        self._real.revive_nodes()

    def poison(self, which: int, amount: int) -> None:
        """Messages that cannot be decoded."""
        cluster, topic = self._real.cluster, TOPICS[which % 2]
        if cluster.partitions(topic):
            cluster.write((topic, amount % cluster.partitions(topic)), b"\xff\x07poison", b"poison")

    def web_wrong(self, which: int, amount: int) -> None:
        """A bridge's web configuration file is changed, and wrong."""
        self._bridge(which).door.set_wrong(amount)

    def web_right(self, which: int, _amount: int) -> None:
        """It is put right."""
        self._bridge(which).door.set_right()

    def disk_full(self, _which: int, _amount: int) -> None:
        """The disk is full that has the exporter's state and spool, and all logs."""
        if self._real.exporter is not None:
            self._real.exporter.disk.fill()

    def disk_free(self, _which: int, _amount: int) -> None:
        """It has room again."""
        if self._real.exporter is not None:
            self._real.exporter.disk.free()

    def exporter_kill(self, _which: int, _amount: int) -> None:
        """`kill -9` of the exporter, which is started again at once."""
        if self._real.exporter is not None:
            self._real.exporter.kill()
            self._real.exporter.start()

    def program(self, _which: int, _amount: int) -> None:
        """Another program begins."""
        if self._real.exporter is not None:
            self._real.exporter.run_program()

    def _restarted(self, replica: Any) -> None:
        self._real.meanwhile(replica.leave)
        replica.start()
        patience = self._real.patience(START_SECONDS)
        while replica.server and not replica.ready() and not replica.door.wrong and not patience.ended:
            self._real.turn()

    def _bridge(self, which: int) -> Any:
        return self._real.replicas[which % len(self._real.replicas)]

    def _incomparable(self, producer: int | None) -> None:
        for replica in self._real.replicas:
            replica.forget(producer)


def skipped() -> dict[str, str]:
    """Operations that this machine cannot do, each with the reason."""
    found = dict.fromkeys(sorted(EXPORTER_OPERATIONS), small_disk_obstacle())
    return {name: reason for name, reason in found.items() if reason}


def drawn(seed: str, *, more: bool = True) -> Schedule:
    """A real schedule, the same for the same seed; without `more`, with none of `MORE_WEIGHTS`."""
    draw = random.Random(f"real/{seed}")
    setting = Setting(draw.choice(MODES), 2, 3, PARTITIONS)
    operations: list[Operation] = []
    for _ in range(draw.randint(3, 6)):
        operations += _one(draw, WEIGHTS)
    draw = random.Random(f"real/more/{seed}")
    for _ in range(draw.randint(0, 3) if more else 0):
        at = 2 * draw.randint(0, len(operations) // 2)
        operations[at:at] = _one(draw, MORE_WEIGHTS)
    return Schedule(setting, tuple(operations))


def _one(draw: random.Random, weights: dict[str, int]) -> list[Operation]:
    (name,) = draw.choices(list(weights), list(weights.values()))
    operation = Operation(name, draw.randrange(6), draw.randrange(12))
    return [operation, Operation("wait", 0, draw.choice(WAITS))]
