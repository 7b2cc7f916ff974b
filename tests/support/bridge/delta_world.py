"""Bridges that add up delta points, on a Kafka in memory."""

from tests.support.bridge.delta_streams import Delta, sums
from tests.support.bridge.fleet import Site
from tests.support.bridge.list_kafka import ListKafka, ManualClock, StateLog

from kernelcast.bridge.delta.settings import DeltaSettings
from kernelcast.bridge.intake.parts import IntakePolicy

P0, P1 = ("kernels", 0), ("kernels", 1)


ORDERS = "orders_total"


STEP_NS = 1_000_000_000


class World:
    """A producer, Kafka, and one bridge after the other."""

    def __init__(self, *, grouped: bool = True, ttl_seconds: float = 300.0) -> None:
        self.clock, self.kafka = ManualClock(), ListKafka(at_once=3)
        self.state = StateLog(self.clock)
        self.grouped, self.ttl_seconds = grouped, ttl_seconds
        self.made: list[Delta] = []
        self.site = self.new_site()

    def new_site(self) -> Site:
        return Site(
            kafka=ListKafka(self.kafka.logs, commits=self.kafka.commits, at_once=3),
            clock=self.clock,
            state=self.state,
            policy=IntakePolicy(self.ttl_seconds, grouped=self.grouped),
            deltas=DeltaSettings(snapshot_seconds=10),
        )

    def start(self, *partitions: tuple[str, int]) -> None:
        self.site.kafka.assign(self.site.intake, *(partitions or (P0,)))

    def crash(self, *partitions: tuple[str, int]) -> None:
        """`kill -9`, and another one in its place."""
        self.site = self.new_site()
        self.start(*partitions)

    def step(self) -> None:
        self.site.intake.step()

    def move(self, *partitions: tuple[str, int]) -> None:
        """The partitions go to another bridge in good order."""
        if self.grouped:
            self.site.kafka.revoke(self.site.intake, *partitions)
        else:
            self.site.intake.close()
        self.crash(*partitions)

    def produce(self, value: int, *, series: str = "a", partition: int = 0, skip: int = 0) -> Delta:
        """The next delta of a series; `skip` intervals are lost before it."""
        before = [point for point in self.made if point.series == series]
        begin = before[-1].time_ns if before else STEP_NS
        point = Delta(begin + skip * STEP_NS, begin + (skip + 1) * STEP_NS, value, series)
        self.made.append(point)
        self.send(point, partition=partition)
        return point

    def send(self, point: Delta, *, partition: int = 0) -> None:
        body, at_ms = sums([point]), round(self.clock.seconds * 1000)
        self.kafka.write("kernels", partition, body, at_ms, keyed=point.series.encode())

    def bury(self, series: str = "a", *, partition: int = 0) -> None:
        """A tombstone of a series' key."""
        self.kafka.write("kernels", partition, None, round(self.clock.seconds * 1000), keyed=series.encode())

    def read(self) -> None:
        self.site.read_all()

    def wait(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.site.intake.step()
        self.read()

    def idle(self, seconds: int) -> None:
        """Let time pass in steps that no bridge takes for a pause of its process."""
        for _ in range(seconds // 5):
            self.wait(5)

    def own(self, name: str, **labels: str) -> float | None:
        return self.site.own(f"kernelcast_bridge_delta_{name}", **labels)

    def starts(self) -> list[int]:
        slots = self.site.store._slots
        return [int(start) for start in slots.series.start_ns[: slots.used][slots.series.state[: slots.used] == 2]]
