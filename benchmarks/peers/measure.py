"""One contestant at one size: started on an empty topic, given every series, then a backlog, then scraped.

The process is stopped (SIGSTOP) while messages are written, so that the writer does not disturb the measurement, and
then reads the backlog. It has finished when it is idle and a scrape shows every series, and every node at its last
tick.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.peers import scrape
from benchmarks.peers.contestants import Contestant, Setup
from benchmarks.peers.load import POINTS, Topic
from benchmarks.peers.process import Process, Watch
from tests.service.servers import ServerProcess, free_ports

START_SECONDS: Final = 300.0
WORK_SECONDS: Final = 1800.0
SETTLE_SECONDS: Final = 0.5
"""Wait after one message, before a scrape, so that the page has changed, as it has in every scrape of Prometheus."""
SCRAPES: Final = 3
LATENCIES: Final = 5
ENOUGH_SECONDS: Final = 15.0
"""A measurement that takes longer is not repeated: pages of some contestants take half a minute."""
LATENCY_SECONDS: Final = 120.0

Say = Callable[[str], None]


@dataclass(frozen=True)
class Size:
    """The size of a measurement.

    Attributes:
        series: How many series, rounded up to whole nodes.
        points: About how many points the backlog has, at least one of each series.
    """

    series: int
    points: int

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return -(-self.series // POINTS)

    @property
    def ticks(self) -> int:
        """Number of messages of each node."""
        return max(1, round(self.points / (self.nodes * POINTS)))


@dataclass
class Figures:
    """The measured figures; times in seconds, memory in bytes, rates in points per second.

    Attributes:
        contestant: The name of the process.
        version: Its release.
        series: Number of series.
        points: Points of the backlog.
        idle_bytes: Resident memory before the first point.
        resident_bytes: Resident memory with every series known, after scrapes.
        peak_bytes: The most it ever held.
        admission_rate: Points per second while every series was new.
        admission_cpu_us: Processor microseconds per new series.
        rate: Points per second of the backlog, every series known.
        cpu_per_million: Processor seconds per million points of the backlog.
        scrapes: By request: format, bytes, seconds, processor seconds.
        visible_seconds: From the writing of a message to the end of a scrape that shows it.
    """

    contestant: str
    version: str
    series: int
    points: int = 0
    idle_bytes: int = 0
    resident_bytes: int = 0
    peak_bytes: int = 0
    admission_rate: float = 0.0
    admission_cpu_us: float = 0.0
    rate: float = 0.0
    cpu_per_million: float = 0.0
    scrapes: dict[str, dict[str, Any]] = field(default_factory=dict)
    visible_seconds: float = 0.0

    @property
    def bytes_per_series(self) -> float:
        """Memory per series: the growth since the process had none."""
        return (self.resident_bytes - self.idle_bytes) / self.series

    def as_dict(self) -> dict[str, Any]:
        """For a JSON file."""
        return {**asdict(self), "bytes_per_series": self.bytes_per_series}


class Run:
    """A contestant at work on a topic."""

    def __init__(self, contestant: Contestant, size: Size, bootstrap_servers: str, say: Say) -> None:
        """Make the topic; nothing is started yet."""
        self._contestant, self._say = contestant, say
        self._bootstrap_servers = bootstrap_servers
        name = f"bench-{contestant.name.split()[0].lower()}-{size.series}-{time.time_ns():x}"
        self._topic = Topic(bootstrap_servers, name, nodes=size.nodes, encoding=contestant.encoding())
        self._ticks = size.ticks
        (self._port,) = free_ports(1)
        self.figures = Figures(contestant.name, contestant.version, self._topic.series)

    def measure(self) -> Figures:
        """Run it from its start to its end.

        Raises:
            AssertionError: It did not start, or does not show all series.
            TimeoutError: It did not come to rest.
        """
        with tempfile.TemporaryDirectory(prefix="kernelcast-peers-") as directory:
            setup = Setup(Path(directory), self._bootstrap_servers, self._topic.name, self._port)
            server = ServerProcess("contestant", self._contestant.command(setup), setup.directory)
            try:
                self._say("starting")
                server.start(self._healthy, START_SECONDS)
                assert server.process is not None
                self._measure(Process(server.process.pid))
            except Exception as error:
                raise AssertionError(f"{self._contestant.name}: {error}\n{server.tail()}") from error
            finally:
                server.kill()
                self._topic.delete()
        return self.figures

    def _measure(self, process: Process) -> None:
        figures = self.figures
        Watch(process).until_rest(quiet_seconds=self._contestant.quiet_seconds, timeout_seconds=START_SECONDS)
        figures.idle_bytes = process.resident_bytes()
        points, work = self._backlog(process, 1)
        figures.admission_rate = points / work.seconds
        figures.admission_cpu_us = work.cpu_seconds * 1e6 / points
        figures.points, work = self._backlog(process, self._ticks)
        figures.rate = figures.points / work.seconds
        figures.cpu_per_million = work.cpu_seconds * 1e6 / figures.points
        for name, headers in scrape.REQUESTS.items():
            self._say(f"scraping: {name}")
            figures.scrapes[name] = self._scrape(process, headers)
        figures.resident_bytes, figures.peak_bytes = process.resident_bytes(), process.peak_bytes()
        self._say("from Kafka to a page")
        figures.visible_seconds = self._visible()

    def _healthy(self) -> bool:
        try:
            scrape.scrape(self._port, {}, path=self._contestant.health)
        except OSError:
            return False
        return True

    def _backlog(self, process: Process, ticks: int) -> tuple[int, Watch]:
        """Continue the process, and wait until it is idle and its page has the whole backlog."""
        with process.stopped():
            self._say(f"writing {ticks * self._topic.series:,} points")
            points = self._topic.send(ticks)
            self._say(f"reading {points:,} points")
        watch = Watch(process)
        while True:
            watch.until_rest(quiet_seconds=self._contestant.quiet_seconds, timeout_seconds=WORK_SECONDS)
            seconds, cpu_seconds = watch.seconds, watch.cpu_seconds
            if not self._missing():
                watch.seconds, watch.cpu_seconds = seconds, cpu_seconds
                return points, watch

    def _missing(self) -> str:
        """Missing parts of the page: it must have every series, and every node at its last tick."""
        text = scrape.scrape(self._port, scrape.REQUESTS["text"], keep=True).text()
        shown, ticks = scrape.series_shown(text), scrape.ticks_shown(text)
        if shown < self._topic.series or len(ticks) < self._topic.nodes:
            return f"{shown} of {self._topic.series} series, {len(ticks)} of {self._topic.nodes} nodes"
        late = sum(tick != self._topic.ticks for tick in ticks)
        return f"{late} of {len(ticks)} nodes are not at tick {self._topic.ticks}" if late else ""

    def _scrape(self, process: Process, headers: Mapping[str, str]) -> dict[str, Any]:
        """The median of some scrapes, each of a page that has changed."""
        seconds, cpu_seconds = [], []
        for _ in range(SCRAPES):
            self._topic.send(1, nodes=1)
            time.sleep(SETTLE_SECONDS)
            before = process.cpu_seconds()
            page = scrape.scrape(self._port, headers)
            seconds.append(page.seconds)
            cpu_seconds.append(process.cpu_seconds() - before)
            if sum(seconds) > ENOUGH_SECONDS:
                break
        return {
            "content_type": page.content_type,
            "coding": page.coding,
            "bytes": page.length,
            "seconds": statistics.median(seconds),
            "cpu_seconds": statistics.median(cpu_seconds),
        }

    def _visible(self) -> float:
        """The median of some latencies."""
        seconds: list[float] = []
        while len(seconds) < LATENCIES and sum(seconds) < ENOUGH_SECONDS:
            seconds.append(self._latency())
        return statistics.median(seconds)

    def _latency(self) -> float:
        """From the writing of one node's message to the end of the first scrape that shows it."""
        began = time.perf_counter()
        self._topic.send(1, nodes=1)
        while time.perf_counter() - began < LATENCY_SECONDS:
            text = scrape.scrape(self._port, scrape.REQUESTS["text"], keep=True).text()
            seconds = time.perf_counter() - began
            if self._topic.ticks in scrape.ticks_shown(text):
                return seconds
        raise TimeoutError(f"a point was not shown within {LATENCY_SECONDS} s")
