"""A bridge as a real process in a schedule: started, stopped, scraped over HTTP or HTTPS, and judged from outside."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from tests.faults.model.bridges import Mode
from tests.faults.model.invariants import Violation
from tests.faults.model.producers import COUNTERS, KERNELS, TOPIC_OF, Named, samples
from tests.faults.real.kafka import TTL_SECONDS, RealCluster
from tests.faults.real.skewed_clock import SkewedClock
from tests.faults.real.waiting import PATIENCE_SECONDS, check_health
from tests.faults.real.web_door import NO_ANSWER, Answer, Door
from tests.service.nursery import ForkedServer, Nursery
from tests.service.servers import ServerProcess, free_ports

STOP_SECONDS: Final = 30.0
CONFIGURATION: Final = 2
"""The exit code of a daemon that refuses its configuration."""
OK: Final = 200
WRONG_FILE: Final = 500


@dataclass
class Surroundings:
    """Resources that all bridges of a schedule share.

    Attributes:
        protocol: Of their group: `classic` or `consumer`.
        nursery: Starts those that need no environment of their own.
        directory: For configurations.
        logs: For logs: the small disk, where the schedule has one.
        environ: Of every other bridge, which needs an interpreter of its own for it.
        clocks: The library with which their clocks can be set, in schedules that do.
        topics: Topics that they read besides the producers' topics.
        defect: Name of a defect of `with_defect` that is put back.
    """

    protocol: str
    nursery: Nursery
    directory: Path
    logs: Path
    environ: dict[str, str] = field(default_factory=dict)
    clocks: Path | None = None
    topics: tuple[str, ...] = ()
    defect: str = ""


@dataclass
class RealReplica:
    """A place where a bridge process runs, or does not; as `bridges.Replica` is to the model.

    Attributes:
        polls: Of no meaning here.
        floors: What Kafka has of each producer: by its number, when the last value was written that is on Kafka now.
    """

    cluster: RealCluster
    number: int
    count: int
    mode: Mode
    around: Surroundings
    door: Door
    floors: Callable[[], dict[int, float]] = dict
    written: Callable[[int, float], float] = lambda _producer, _value: 0.0
    polls: int = 0
    suspended: bool = False
    server: ServerProcess | None = None
    page: str = ""
    _clock: SkewedClock | None = None
    _answered: bool = False
    _floors: dict[int, float] = field(default_factory=dict)
    _was_ready: bool = False
    _served: bool = False
    _shown: dict[Named, float] = field(default_factory=dict)
    _first: bool = True
    _began_ahead: bool = False

    def __post_init__(self) -> None:
        (port,) = free_ports(1)
        self._address = f"127.0.0.1:{port}"
        self.url = self.door.url(port)
        if self.around.clocks is not None:
            self._clock = SkewedClock(self.around.directory / f"clock-{self.number}", self.around.clocks)

    @property
    def running(self) -> bool:
        """Whether it can be scraped: its process runs and has answered before.

        Raises:
            Violation: It has ended by itself.
        """
        if self.server is None or self.suspended:
            return False
        code = self.server.poll()
        if code is not None:
            if code != CONFIGURATION or not self.door.wrong or self._answered:
                raise Violation("a bridge ends", f"replica {self.number}, exit code {code}: {self.server.tail(1500)}")
            self._gone()
        elif not self._answered:
            self._answered = self._ask("/-/healthy").status != NO_ANSWER
        return self._answered

    def start(self) -> None:
        """Start a bridge."""
        if self.server is not None:
            return
        self._floors, self._first, self._answered = self.floors(), True, False
        self._began_ahead = self._clock is not None and self._clock.ahead_seconds > 0
        arguments = ["bridge", "--config", str(self._configuration()), "--web.config.file", str(self.door.path)]
        environ = self._environ()
        name = f"bridge-{self.number}"
        defect = self.around.defect
        if environ:
            module = ("tests.faults.real.with_defect", defect) if defect else ("kernelcast.cli",)
            self.server = ServerProcess(name, [sys.executable, "-m", *module, *arguments], self.around.logs, environ)
        else:
            before = f"tests.faults.real.with_defect:{defect}" if defect else ""
            self.server = ForkedServer(name, arguments, self.around.logs, self.around.nursery, before=before)
        self.server.start()

    def kill(self) -> None:
        """`kill -9`."""
        if self.server is not None:
            self.server.kill()
        self._gone()

    def leave(self) -> None:
        """SIGTERM."""
        if self.server is not None and not self.suspended:
            self.server.stop(STOP_SECONDS)
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

    def set_clock(self, ahead_seconds: float) -> None:
        """Set the clock of the bridge that runs here, and of those to come; in a schedule with clocks."""
        if self._clock is not None:
            self._clock.set(ahead_seconds)

    def scrape(self) -> dict[Named, float]:
        """The samples that it exposes.

        Raises:
            Violation: It serves a page under a wrong web configuration.
        """
        self._was_ready = self.ready()
        answer = self._ask("/metrics", timeout_seconds=10)
        if self.door.wrong and answer.status == OK:
            raise Violation("a page is served under a wrong web configuration", f"replica {self.number}")
        self.page, self._served = answer.body, answer.status == OK
        self._shown = dict(samples(self.page))
        return self._shown

    def healthy(self) -> None:
        """Ask `/-/healthy`, and once more if that is not answered in time.

        Raises:
            Violation: There is no answer, both take longer than a second, or the last does not have the
                status that the web configuration demands.
        """
        assert self.server is not None
        statuses: list[int] = []

        def answered() -> bool:
            statuses.append(self._ask("/-/healthy").status)
            return statuses[-1] != NO_ANSWER

        check_health(answered, self.server)
        expected = WRONG_FILE if self.door.wrong else OK
        if expected != statuses[-1]:
            detail = f"replica {self.number} answers {statuses} in place of {expected}"
            raise Violation("health has the wrong status", detail)

    def ready(self) -> bool:
        """Whether `/-/ready` reports the bridge as ready."""
        return self._ask("/-/ready").status == OK

    def behind(self) -> list[Any]:
        """Series of the last page that show that it was ready before it had caught up.

        A value is too old if Kafka had a newer one of its series when the process was started. Where every replica
        reads everything, the first page after it is ready has every series, too, unless it has started with a clock
        ahead of Kafka's: it begins at the end of its topics then.
        """
        if not self._was_ready or not self._served:
            return []
        newest: dict[int, float] = {}
        for (name, producer), value in self._shown.items():
            if name in COUNTERS and TOPIC_OF[name] == KERNELS:
                newest[producer] = max(newest.get(producer, 0.0), self.written(producer, value))
        old = [
            (producer, round(floor - newest[producer], 1))
            for producer, floor in self._floors.items()
            if newest.get(producer, floor) < floor
        ]
        absent = [(producer, "absent") for producer in self._floors if producer not in newest]
        first, self._first = self._first, False
        expected = first and self.mode == "replica" and not self._began_ahead
        return [*old, *(absent if expected else [])]

    def forget(self, producer: int | None = None) -> None:
        """Take no value of a producer, or of all, as too old any more: a fault makes them hard to compare."""
        for number in list(self._floors):
            if producer in (None, number):
                del self._floors[number]

    def _ask(self, path: str, timeout_seconds: float = PATIENCE_SECONDS) -> Answer:
        return self.door.ask(f"{self.url}{path}", timeout_seconds)

    def _configuration(self) -> Path:
        settings: dict[str, Any] = {
            "web": {"listen_address": self._address},
            "mode": self.mode,
            "group_id": f"bridge-{self.cluster.tag}",
            "topics": [self.cluster.name("kernels"), self.cluster.name("orders"), *self.around.topics],
            "ttl_seconds": TTL_SECONDS,
            "ttl_floor_seconds": 8,
            "missed_intervals": 8,
            "takeover_seconds": 8,
        }
        if self.mode == "group":
            settings["group_protocol"] = self.around.protocol
        properties = {"topic.metadata.refresh.interval.ms": 3000}
        if settings.get("group_protocol") != "consumer":  # in that protocol the brokers set it
            properties["session.timeout.ms"] = 6000
        kafka = {"bootstrap_servers": self.cluster.kafka.bootstrap_servers, "properties": properties}
        path = self.around.directory / f"bridge-{self.number}.yaml"
        path.write_text(yaml.safe_dump({"kafka": kafka, "bridge": settings}))
        return path

    def _environ(self) -> dict[str, str]:
        environ = {**self.around.environ} if self.number % 2 else {}
        environ |= self._clock.environ if self._clock is not None else {}
        return environ

    def _signal(self, number: signal.Signals) -> None:
        assert self.server is not None
        assert self.server.process is not None
        os.killpg(self.server.process.pid, number)

    def _gone(self) -> None:
        self.server, self.suspended, self._answered = None, False, False
