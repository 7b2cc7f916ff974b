"""A million series in one bridge, scraped in shards by a real Prometheus while points arrive ever faster.

    python -m benchmarks.million --json million.json
    python -m benchmarks.million --series 100000 --rates 50000,100000 --seconds 45

Kafka, bridge, Prometheus and the writer of the points share this machine. A rate holds if the writer kept it, the
bridge read everything that was written, and Prometheus missed nothing: every scrape came in its time and was good, and
at the end every series has one sample for every interval.
"""

import argparse
import contextlib
import itertools
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

import yaml
from benchmarks.peers import scrape
from benchmarks.peers.load import FAMILY, METRICS, POINTS, Otlp, Topic
from benchmarks.peers.machine import machine
from benchmarks.peers.process import Process, Watch
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from tests.service.built import PROMETHEUS
from tests.service.servers import KafkaServer, PrometheusServer, ServerProcess, free_ports, get, wait_for

INTERVAL_SECONDS: Final = 15
TTL_SECONDS: Final = 300
PACE_SECONDS: Final = 0.05
"""Interval at which the writer sends the points that are due."""
LATE_RATIO: Final = 1.5
"""Limit, in intervals, between two scrapes; beyond it one was left out."""
READ_WITHIN_SECONDS: Final = 1.0
"""Longest lag at which a rate still holds."""
KEPT_RATIO: Final = 0.98
"""Share of a rate that the writer must have written."""
SETTLE_INTERVALS: Final = 3
"""Scrape intervals before the first rate, so that Prometheus knows all series."""
QUIET_SECONDS: Final = 3.0
ADMISSION_SECONDS: Final = 600.0
JOB: Final = "bridge"


@dataclass(frozen=True)
class Step:
    """The result of one rate.

    Attributes:
        rate: Points per second that were to be written.
        written: Points per second that were.
        behind: Points that the bridge had not read one second after the end.
        cores: Processor seconds per second that the bridge used, scrapes included.
        scrapes: How many there were of all shards.
        missed: Scrapes that failed or were left out.
        slowest_seconds: The longest scrape of a shard, as Prometheus saw it.
        samples: Fewest samples that all shards together gave in one round.
    """

    rate: int
    written: float
    behind: int
    cores: float
    scrapes: int
    missed: int
    slowest_seconds: float
    samples: int

    @property
    def holds(self) -> bool:
        """Whether nothing was late and nothing was lost."""
        return (
            not self.missed
            and self.behind <= self.rate * READ_WITHIN_SECONDS
            and self.written >= self.rate * KEPT_RATIO
        )


class Writer:
    """Sends messages of the nodes in turn, on a thread of its own, at a rate that can be changed."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._rate = 0
        self._stopping = threading.Event()
        self.points = 0
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def set(self, rate: int) -> None:
        """Set the rate, in points per second, from now on."""
        self._rate = rate

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        owed, before = 0.0, time.monotonic()
        while not self._stopping.wait(PACE_SECONDS):
            now = time.monotonic()
            # What could not be written in a second is not made up for: the rate was not held.
            owed = min(owed + self._rate * (now - before), float(self._rate))
            before = now
            messages = int(owed // POINTS)
            owed -= messages * POINTS
            self.points += self._topic.send_next(messages)


class Stage:
    """Kafka, one bridge full of series, and a Prometheus that scrapes it."""

    def __init__(self, directory: Path, series: int, shards: int, console: Console) -> None:
        self.shards, self._console = shards, console
        self.kafka = KafkaServer(directory).run()
        self.topic = Topic(self.kafka.bootstrap_servers, "million", nodes=-(-series // POINTS), encoding=Otlp())
        (self.port,) = free_ports(1)
        self._servers: list[ServerProcess] = [self.kafka]
        self._directory = directory
        self.idle_bytes = 0
        self.admission_seconds = 0.0

    def close(self) -> None:
        """Stop everything."""
        for server in reversed(self._servers):
            server.kill()

    def start(self) -> None:
        """Start the bridge, write one point of every series, and start Prometheus when the bridge has all of them."""
        bridge = ServerProcess(
            "bridge", [sys.executable, "-m", "kernelcast.cli", "bridge", "--config", self._settings()], self._directory
        )
        self._servers.append(bridge)
        bridge.start(lambda: bool(self._page("/-/ready")), 120)
        assert bridge.process is not None
        self.process = Process(bridge.process.pid)
        self.idle_bytes = self.process.resident_bytes()
        self._say(f"{self.topic.series:,} series arrive")
        watch = Watch(self.process)
        self.topic.send(1)
        watch.until_rest(quiet_seconds=QUIET_SECONDS, timeout_seconds=ADMISSION_SECONDS)
        self.admission_seconds = watch.seconds
        self._say(f"admitted in {watch.seconds:.1f} s; Prometheus meets them")
        options = ("--query.max-samples=200000000", "--query.timeout=5m")
        self.prometheus = PrometheusServer(
            self._directory, self._scraping(), program=PROMETHEUS.build(), options=options
        ).run()
        self._servers.append(self.prometheus)

    def own(self, name: str) -> float:
        """Return the sum of one of the bridge's own metrics."""
        names = f"name[]={name}&name[]={name.removesuffix('_total')}"
        families = text_string_to_metric_families(get(f"http://127.0.0.1:{self.port}/metrics?{names}"))
        return sum(sample.value for family in families for sample in family.samples if sample.name == name)

    def scrape_cost(self, headers: dict[str, str]) -> tuple[float, float, int]:
        """Seconds, processor seconds and bytes of one round over all shards, of a page that has just changed."""
        self.topic.send(1, nodes=1)
        time.sleep(1)
        before, began, size = self.process.cpu_seconds(), time.perf_counter(), 0
        for number in range(self.shards):
            size += scrape.scrape(self.port, headers, path=f"/metrics?shard={number}/{self.shards}").length
        return time.perf_counter() - began, self.process.cpu_seconds() - before, size

    def _page(self, path: str) -> str:
        with contextlib.suppress(OSError):
            return get(f"http://127.0.0.1:{self.port}{path}")
        return ""

    def _settings(self) -> str:
        path = self._directory / "kernelcast.yaml"
        bridge = {
            "web": {"listen_address": f"127.0.0.1:{self.port}"},
            "topics": [self.topic.name],
            "ttl_seconds": TTL_SECONDS,
        }
        content = {"kafka": {"bootstrap_servers": self.kafka.bootstrap_servers}, "bridge": bridge}
        path.write_text(yaml.safe_dump(content))
        return str(path)

    def _scraping(self) -> Path:
        path = self._directory / "prometheus.yml"
        job = {
            "job_name": JOB,
            "honor_labels": True,
            "scrape_interval": f"{INTERVAL_SECONDS}s",
            "http_sd_configs": [{"url": f"http://127.0.0.1:{self.port}/sd?shards={self.shards}"}],
        }
        path.write_text(yaml.safe_dump({"scrape_configs": [job]}))
        return path

    def _say(self, text: str) -> None:
        self._console.print(text)


def step(stage: Stage, writer: Writer, rate: int, seconds: int) -> Step:
    """Write points at a rate for some seconds, and return whether bridge and Prometheus kept up."""
    writer.set(rate)
    time.sleep(INTERVAL_SECONDS)
    began, began_at, cpu, points = time.monotonic(), time.time(), stage.process.cpu_seconds(), writer.points
    time.sleep(seconds)
    elapsed, used, written = time.monotonic() - began, stage.process.cpu_seconds() - cpu, writer.points - points
    until_now = writer.points + stage.topic.series
    time.sleep(READ_WITHIN_SECONDS)
    behind = until_now - round(stage.own("kernelcast_bridge_points_total"))
    ups = scraped(stage.prometheus, "up", began_at, elapsed)
    missed = sum(value != 1 for series in ups for _, value in series)
    for series in ups:
        times = [began_at, *(at for at, _ in series), began_at + elapsed]
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        missed += sum(gap > LATE_RATIO * INTERVAL_SECONDS for gap in gaps)
    durations = scraped(stage.prometheus, "scrape_duration_seconds", began_at, elapsed)
    counts = scraped(stage.prometheus, "scrape_samples_scraped", began_at, elapsed)
    return Step(
        rate=rate,
        written=written / elapsed,
        behind=max(0, behind),
        cores=used / elapsed,
        scrapes=sum(len(series) for series in ups),
        missed=missed + max(0, stage.shards - len(ups)),
        slowest_seconds=max((value for series in durations for _, value in series), default=0.0),
        samples=round(sum(min(value for _, value in series) for series in counts)),
    )


def scraped(
    prometheus: PrometheusServer, name: str, began_at: float, elapsed: float
) -> list[list[tuple[float, float]]]:
    """The samples of a series that Prometheus writes about each target, in that time."""
    found = prometheus.samples(f'{name}{{job="{JOB}"}}', f"{round(time.time() - began_at) + 1}s")
    return [[(at, value) for at, value in samples if began_at <= at <= began_at + elapsed] for _, samples in found]


def samples_kept(prometheus: PrometheusServer, end: float, intervals: int) -> dict[str, int]:
    """Number of series by their number of samples in the last intervals; each should have one per interval."""
    found: Counter[str] = Counter()
    for number in range(METRICS):  # one at a time, because what counts samples drops the names
        counted = f"count_over_time({FAMILY}_{number}[{intervals * INTERVAL_SECONDS}s])"
        for labels, value in prometheus.query(f'count_values("samples", {counted})', end):
            found[labels["samples"]] += round(value)
    return dict(found)


@contextlib.contextmanager
def staged(series: int, shards: int, console: Console) -> Iterator[Stage]:
    """Everything running; stopped when the block ends."""
    with tempfile.TemporaryDirectory(prefix="kernelcast-million-") as directory:
        stage = Stage(Path(directory), series, shards, console)
        try:
            stage.start()
            yield stage
        finally:
            stage.close()


def measure(stage: Stage, rates: list[int], seconds: int, console: Console) -> dict[str, Any]:
    """Measures every rate in turn, then Prometheus's stored samples, then the cost of a scrape on an idle machine."""
    steps: list[Step] = []
    with Writer(stage.topic) as writer:
        writer.set(rates[0])
        wait_for("a good scrape of every shard", lambda: stage.prometheus.scalar("sum(up)") == stage.shards, 120)
        time.sleep(SETTLE_INTERVALS * INTERVAL_SECONDS)
        began = time.time()
        for rate in rates:
            steps.append(step(stage, writer, rate, seconds))
            console.print(steps[-1], "[green]holds[/]" if steps[-1].holds else "[red]does not hold[/]")
            if not steps[-1].holds:
                break
        intervals = int((time.time() - began) // INTERVAL_SECONDS)
        kept_until = time.time()
    figures: dict[str, Any] = {
        "series": stage.topic.series,
        "shards": stage.shards,
        "admission_seconds": stage.admission_seconds,
        "idle_bytes": stage.idle_bytes,
        "resident_bytes": stage.process.resident_bytes(),
        "peak_bytes": stage.process.peak_bytes(),
        "bytes_per_series": (stage.process.resident_bytes() - stage.idle_bytes) / stage.topic.series,
        "steps": [{**asdict(each), "holds": each.holds} for each in steps],
        "intervals": intervals,
        "samples_kept": samples_kept(stage.prometheus, kept_until, intervals),
    }
    for name, headers in scrape.REQUESTS.items():
        wall, cpu, size = stage.scrape_cost(dict(headers))
        figures[f"round of all shards: {name}"] = {"seconds": wall, "cpu_seconds": cpu, "bytes": size}
    return figures


def main() -> None:
    """Measure, print, and write the requested output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--rates", default="67000,100000,150000,200000,300000,400000,500000")
    parser.add_argument("--seconds", type=int, default=60, help="how long each rate lasts, after one scrape interval")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console = Console()
    before = machine()
    with staged(options.series, options.shards, console) as stage:
        figures = measure(stage, [int(rate) for rate in options.rates.split(",")], options.seconds, console)
    for name, value in figures.items():
        console.print(f"{name}: {value}")
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": before, **figures}, indent=2) + "\n")


if __name__ == "__main__":
    main()
