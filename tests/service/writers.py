"""Writers of metrics whose truth is known, with the faults that writers have: clocks, retries, restarts."""

import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from confluent_kafka import Producer

from kernelcast.columnar import Resource, Sample, encode
from kernelcast.wire.catalogue import kernel

LAUNCHES = "cuda_kernel_launches_total"
OLD_MESSAGES = 20


@dataclass(frozen=True)
class Faults:
    """The fault of a writer.

    Attributes:
        skew_seconds: How far its clock is ahead.
        repeats: How many of its older messages it sends again beside each new one, in any order.
        unkeyed: Whether its messages have no key, so that they lie in any partition.
        restarts: Whether it begins at 0 again half-way, as another process.
    """

    skew_seconds: float = 0.0
    repeats: int = 0
    unkeyed: bool = False
    restarts: bool = False


@dataclass
class Truth:
    """The written values: the last value of each kernel, and its total increase."""

    last: dict[str, int] = field(default_factory=dict)
    rise: dict[str, int] = field(default_factory=dict)


class Writer(threading.Thread):
    """Writes counters every quarter of a second until it is stopped; `with Writer(…)` stops it, whatever happens."""

    def __init__(self, bootstrap_servers: str, topic: str, name: str, faults: Faults, *, kernels: int = 5) -> None:
        super().__init__(name=name, daemon=True)
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "acks": "all", "enable.idempotence": True, "log_level": 2}
        )
        self._topic, self._faults = topic, faults
        self._random = random.Random(name)
        self._stopping = threading.Event()
        self._restarting = threading.Event()
        self._kernels = [f"{name}-{number}" for number in range(kernels)]
        self._sent: list[bytes] = []
        self._started_ns = self._now_ns()
        self.messages = 0
        self.truth = Truth(dict.fromkeys(self._kernels, 0), dict.fromkeys(self._kernels, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        if self.is_alive():
            self.join(90)

    def run(self) -> None:
        """Write; called by `start`."""
        while not self._stopping.wait(0.25):
            if self._restarting.is_set():
                self._restarting.clear()
                self._begin_again()
            self.write()
        self.write()
        assert self._producer.flush(60) == 0

    def restart(self) -> None:
        """Have it begin at 0, as after a crash."""
        self._restarting.set()

    def stop(self) -> Truth:
        """The truth, once all of it is on Kafka."""
        self._stopping.set()
        self.join(90)
        assert not self.is_alive(), "a writer could not write everything"
        return self.truth

    def write(self) -> None:
        """One export, and some older ones again."""
        for name in self._kernels:
            more = self._random.randrange(1, 50)
            self.truth.last[name] += more
            self.truth.rise[name] += more
        now_ns = self._now_ns()
        samples = [
            Sample(kernel.LAUNCHES, (("kernel", name),), now_ns, value, self._started_ns)
            for name, value in self.truth.last.items()
        ]
        resource = Resource((("service.instance.id", self.name), ("service.name", "kernelcast-exporter")))
        (export,) = encode(resource, samples, scope="test")
        bodies = self._random.sample(self._sent, min(self._faults.repeats, len(self._sent)))
        bodies.insert(self._random.randrange(len(bodies) + 1), export.body)
        self._sent = [*self._sent, export.body][-OLD_MESSAGES:]
        for body in bodies:
            self._producer.produce(self._topic, body, key=None if self._faults.unkeyed else self.name.encode())
        self.messages += len(bodies)
        self._producer.poll(0)

    def _begin_again(self) -> None:
        self._started_ns = self._now_ns()
        self.truth.last.update(dict.fromkeys(self._kernels, 0))

    def _now_ns(self) -> int:
        return time.time_ns() + round(self._faults.skew_seconds * 1e9)


class Fleet:
    """Several writers at once; `with Fleet(…) as fleet` stops them."""

    def __init__(self, bootstrap_servers: str, topic: str, writers: Mapping[str, Faults]) -> None:
        self.writers = [Writer(bootstrap_servers, topic, name, faults) for name, faults in writers.items()]

    def __enter__(self) -> Self:
        for writer in self.writers:
            writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def restart_some(self) -> None:
        """Have those begin again that are to."""
        for writer in self.writers:
            if writer._faults.restarts:
                writer.restart()

    def stop(self) -> Truth:
        """Everybody's truth."""
        whole = Truth()
        for writer in self.writers:
            truth = writer.stop()
            whole.last.update(truth.last)
            whole.rise.update(truth.rise)
        return whole
