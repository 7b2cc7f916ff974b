"""Series that a simulated fleet writes, at regular moments: for promtool's clock, and for a Prometheus."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache

from kernelcast.exporter.exposition import render
from kernelcast.exporter.pipeline import Pipeline, Tick
from kernelcast.exporter.simulate import BACKGROUNDS, FAULTS, SimulatedFleet, SimulationSettings, parse
from kernelcast.exporter.totals.aggregate import Aggregator, ProgramSamples
from kernelcast.grafana import rules
from kernelcast.wire.catalogue import bridge, exporter
from kernelcast.wire.catalogue.devices import gpu
from kernelcast.wire.topics import DEVICE

SECOND_NS = 1_000_000_000
EXPORTER_JOB = "kernelcast-exporter"
PREDICTOR_JOB = "kernelcast-predictor"
SERVICES = ("kernelcast-bridge", PREDICTOR_JOB)
SPOOLED_BYTES_PER_SECOND = 5000
HUNG_CALL = "nvmlDeviceGetUtilizationRates"


class Unpublished:
    """A publisher that sends nothing."""

    messages = points = size_bytes = 0

    def kernels(self, _group: object) -> None:
        """Nothing is sent."""

    def ended(self, _written: object, _time_ns: int) -> list[ProgramSamples]:
        """Return no program: none is retired here."""
        return []

    def devices(self, _samples: object) -> None:
        """Nothing is sent."""


@dataclass(slots=True)
class Watched:
    """Values of each series, one for each moment; None where there is none, as at the first, where nothing runs yet."""

    moments: int = 1
    values: dict[str, list[str | None]] = field(default_factory=dict)

    def add(self, lines: Iterable[tuple[str, str]]) -> None:
        """Add one moment."""
        for series, value in lines:
            self.values.setdefault(series, [None] * self.moments).append(value)
        self.moments += 1
        for own in self.values.values():
            if len(own) < self.moments:
                own.append(None)


@dataclass(frozen=True, slots=True)
class Stop:
    """A service that is stopped.

    Attributes:
        service: `node`, `exporter`, `kafka` or `predictor`.
        after: When, in simulated seconds.
    """

    service: str
    after: int


def simulate(
    *faults: str,
    seconds: int,
    every: int = 30,
    start_ns: int = 1_760_000_000 * SECOND_NS,
    metrics: Collection[str] | None = None,
    step_seconds: float = 5.0,
) -> Watched:
    """Let a fleet of one node with two GPUs run.

    Args:
        faults: As on the command line of `kernelcast simulate`.
        seconds: Length, in simulated time.
        every: Time between two moments.
        start_ns: When it begins, Unix nanoseconds.
        metrics: Names of metrics that are kept, of histograms also with suffix; None keeps all.
        step_seconds: How finely time is simulated.
    """
    fleet = Fleet(*faults, start_ns=start_ns, metrics=metrics, step_seconds=step_seconds)
    (watched,) = watch(fleet, (None,), seconds=seconds, every=every)
    return watched


def watch(fleet: "Fleet", stops: Sequence[Stop | None], *, seconds: int, every: int = 30) -> list[Watched]:
    """Let a fleet run once; return its series as they are with each of some services stopped, and with none."""
    pages = [(stop, fleet.page(), Watched()) for stop in stops]
    for moment in range(1, seconds // every + 1):
        measured = fleet.measure(fleet.start_ns + moment * every * SECOND_NS)
        for stop, page, watched in pages:
            down = (stop.service,) if stop is not None and moment * every >= stop.after else ()
            watched.add(page.lines(measured, down))
    return [watched for _, _, watched in pages]


class Fleet:
    """A simulated fleet as an exporter's page, with the series of the services that alerts read.

    Args:
        faults: As on the command line of `kernelcast simulate`.
        start_ns: When it begins, Unix nanoseconds.
        nodes: Nodes of two GPUs each.
        step_seconds: How finely time is simulated.
        metrics: Names of metrics that are written, of histograms also with suffix; None writes all.
    """

    def __init__(
        self,
        *faults: str,
        start_ns: int,
        nodes: int = 1,
        step_seconds: float = 5.0,
        metrics: Collection[str] | None = None,
    ) -> None:
        chosen = tuple(
            parse(text, FAULTS if text.partition(":")[0] in FAULTS else BACKGROUNDS, option="--fault")
            for text in faults
        )
        settings = SimulationSettings(
            nodes=nodes, gpus=2, kernels=4, rate=200.0, step_seconds=step_seconds, faults=chosen
        )
        self.hosts = tuple(f"sim-node-{number}" for number in range(nodes))
        source = SimulatedFleet(settings, start_ns=start_ns)
        self.start_ns = start_ns
        self._metrics = metrics
        self._pipeline = Pipeline([source], Aggregator(max_kernels=None), Unpublished())  # type: ignore[arg-type]
        self._page = self.page()

    def page(self) -> "FleetPage":
        """A page about this fleet, with services of its own."""
        return FleetPage(self.hosts, self.start_ns, self._metrics)

    def measure(self, now_ns: int) -> "Measured":
        """Measure all nodes at a moment, Unix nanoseconds, as their exporters do."""
        tick = self._pipeline.tick(now_ns)
        return Measured(tick, list(_chosen(_measured(tick, self._metrics), self._metrics)))

    def lines(self, now_ns: int, down: Sequence[str] = ()) -> list[tuple[str, str]]:
        """Every series and its value at a moment, Unix nanoseconds.

        Args:
            now_ns: The moment.
            down: Services that are stopped; `node` is the last node, `exporter` the daemon on it.
        """
        return self._page.lines(self.measure(now_ns), down)


@dataclass(frozen=True, slots=True)
class Measured:
    """One interval of a fleet's exporters, and the series in it."""

    tick: Tick
    lines: Sequence[tuple[str, str]]


class FleetPage:
    """The series of a fleet and of the services that alerts read, some of which may be stopped."""

    def __init__(self, hosts: Sequence[str], start_ns: int, metrics: Collection[str] | None) -> None:
        self._hosts = hosts
        self._metrics = metrics
        self._kafka_answered_ns = start_ns
        self._kept: list[tuple[str, str]] = []

    def lines(self, measured: Measured, down: Sequence[str]) -> list[tuple[str, str]]:
        """Every series and its value; see `Fleet.lines`."""
        tick = measured.tick
        dead = self._hosts[-1] if {"node", "exporter"} & {*down} else ""
        if "kafka" not in down:
            self._kept = [(series, value) for series, value in measured.lines if not dead or host_of(series) != dead]
            self._kafka_answered_ns = tick.time_ns
        outage_seconds = (tick.time_ns - self._kafka_answered_ns) / SECOND_NS
        services = [*_services(tick, self._hosts, down), *_of_kafka(self._hosts, outage_seconds)]
        return [*self._kept, *_chosen(services, self._metrics)]


def _chosen(lines: Iterable[tuple[str, str]], metrics: Collection[str] | None) -> Iterator[tuple[str, str]]:
    return ((series, value) for series, value in lines if metrics is None or name_of(series) in metrics)


@cache
def asked_for(profile: rules.Profile) -> frozenset[str]:
    """Names of the metrics that alerts and recordings ask for; no alert asks for quantiles of histograms."""
    texts = rules.render(profile)
    words = re.findall(r"[A-Za-z_]\w+", texts[rules.ALERTS_FILE] + texts[rules.CLASSIC_FILE])
    return frozenset(word for word in words if not word.endswith("_bucket"))


def name_of(series: str) -> str:
    """Name of a series' metric."""
    return series.partition("{")[0]


def host_of(series: str) -> str:
    """Name of the node that a series is about."""
    found = re.search(r'Hostname="([^"]*)"', series)
    return found[1] if found else ""


def _measured(tick: Tick, metrics: Collection[str] | None) -> Iterator[tuple[str, str]]:
    """Series with the labels that the bridge gives them: the measuring service, and its host.

    Samples without any of the metrics are left out before they are written: most of the time goes into their labels.
    """
    samples = [*tick.devices, *(one for group in tick.programs for one in group.samples)]
    if metrics is not None:
        chosen = _families(frozenset(metrics))
        samples = [one for one in samples if one.metric.prometheus_name in chosen]
    for text in render(samples).decode().splitlines():
        if not text.startswith("#"):
            series, _, value = text.rpartition(" ")
            yield _exposed(series), value


@cache
def _families(metrics: frozenset[str]) -> frozenset[str]:
    return frozenset(name.removesuffix(suffix) for name in metrics for suffix in ("", "_bucket", "_sum", "_count"))


@lru_cache(maxsize=10_000)
def _exposed(series: str) -> str:
    return series[:-1] + f',job="{EXPORTER_JOB}",instance="{host_of(series)}"}}'


def _services(tick: Tick, hosts: Sequence[str], down: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Series of the services themselves, as far as alerts read them."""
    for job in SERVICES:
        yield f'up{{job="{job}",instance="{job}:1"}}', "0" if job.removeprefix("kernelcast-") in down else "1"
    for host in hosts:
        gone = host == hosts[-1] and bool({"node", "exporter"} & {*down})
        yield _producer(EXPORTER_JOB, host), "0" if gone or "kafka" in down else "1"
        yield f'up{{job="{EXPORTER_JOB}",instance="{host}:9400"}}', "0" if gone else "1"
        answers = [
            bool(one.value) for one in tick.devices if one.metric is gpu.GPU_UP and ("Hostname", host) in one.attributes
        ]
        if not gone and answers and not any(answers):
            own = f'call="{HUNG_CALL}",instance="{host}:9400",job="{EXPORTER_JOB}"'
            yield f"{exporter.NVML_HUNG.prometheus_name}{{{own}}}", "1"
    yield _producer(PREDICTOR_JOB, "predictor-1"), "0" if {"predictor", "kafka"} & {*down} else "1"
    newest_ns = max((sample.time_ns for sample in tick.devices), default=tick.time_ns)
    ahead = (newest_ns - tick.time_ns) / SECOND_NS
    yield f'{bridge.CLOCK_AHEAD.prometheus_name}{{topic="{DEVICE.name}",job="kernelcast-bridge"}}', str(ahead)


def _of_kafka(hosts: Sequence[str], outage_seconds: float) -> Iterator[tuple[str, str]]:
    """The bridge's view of Kafka, and the exporters' spools, which fill while it does not answer."""
    yield f'{bridge.KAFKA_OUTAGE.prometheus_name}{{job="kernelcast-bridge",instance="b:1"}}', str(outage_seconds)
    for host in hosts:
        own = f'job="{EXPORTER_JOB}",instance="{host}:9400"'
        yield f"{exporter.SPOOL_BYTES.prometheus_name}{{{own}}}", str(outage_seconds * SPOOLED_BYTES_PER_SECOND)


def _producer(job: str, instance: str) -> str:
    return f'{bridge.PRODUCER_UP.prometheus_name}{{job="{job}",instance="{instance}"}}'
