"""Reads the `/metrics` page of an exporter or a bridge: GPUs, kernels, programs, forecasts, hints, producers.

`top` and an exporter read the text of a page, a bridge the samples of its store.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from kernelcast.runtime.prometheus_text import LINE_FEED, TextSample, samples
from kernelcast.wire.catalogue import OWN_NAMES, bridge, exporter, forecast, kernel, own_name, predictor
from kernelcast.wire.catalogue.devices import device, gpu
from kernelcast.wire.errors import DecodeError, PageError

_STEP_ROWS: Final = (
    *(kernel.STEPS, kernel.ITEMS, kernel.STEP_SECONDS, kernel.PHASE_SECONDS),
    *(kernel.REGION_WALL, kernel.PHASE, kernel.PROGRESS, kernel.JOB_INFO),
)
ROWS: Final = (
    *(*device.ROWS, gpu.GPU_UP),
    *(kernel.DURATION, kernel.LAUNCHES, kernel.PROBE_RUNNING, kernel.PROBE_MEASURED, *_STEP_ROWS),
    *(kernel.KERNEL_INFO, kernel.PROGRAM_INFO, kernel.PROCESSES),
    *(kernel.TUNABLE_INFO, kernel.HINT_OUTCOMES, kernel.HINT_MEASURED),
    *(forecast.FORECAST_VALUE, forecast.JUDGED_SERIES, forecast.DEGRADATION_PROBABILITY),
    *(forecast.DEGRADATION_TIME, forecast.DEGRADATION_CROSSED),
    *(forecast.HINTS_ISSUED, forecast.HINT_OPEN, forecast.HINT_EXPECTED),
    *(exporter.TICKS, predictor.SWEEPS, bridge.PRODUCER_UP, bridge.PRODUCER_AGE),
)
"""Rows that are shown. A page of a large bridge has a million lines; only those whose names begin so are parsed."""
_DURATION: Final = kernel.DURATION.prometheus_name
_REGION_WALL: Final = kernel.REGION_WALL.prometheus_name
_PARTS: Final = {kernel.PHASE_SECONDS.prometheus_name: "phase", _REGION_WALL: "region"}
"""Rows with the time of parts of a step, and the label that names the part."""
_OWN_NAMES: Final = frozenset(row.prometheus_name for row in ROWS)
NAMES: Final = _OWN_NAMES | {other for other, own in OWN_NAMES.items() if own in _OWN_NAMES}
"""Names of the rows, with DCGM's other names of them."""
_SHOWN: Final = (*NAMES, "kernelcast_bridge_")
_STEP_NAMES: Final = frozenset(row.prometheus_name for row in _STEP_ROWS)
PREDICTOR_JOB: Final = "kernelcast-predictor"


SeriesKey = tuple[tuple[str, str], ...]
"""Labels of a series of a kernel, sorted."""


def program_of(labels: Mapping[str, str]) -> SeriesKey:
    """Labels of the program on a GPU that a series belongs to."""
    return tuple((name, labels[name]) for name in kernel.PROGRAM_LABELS if labels.get(name))


def work_of(labels: Mapping[str, str]) -> SeriesKey:
    """Labels of a kernel of a program on a GPU."""
    return (*program_of(labels), ("kernel", labels.get("kernel", "")))


@dataclass(slots=True)
class ProgramTimes:
    """Seconds of a program's processes, and those of them in which kernels were measured."""

    running: float = 0.0
    measured: float = 0.0


@dataclass(slots=True)
class StepTotals:
    """Steps of one rank of a program, since the beginning.

    Attributes:
        steps: Steps that have ended.
        items: Samples, tokens or the like.
        seconds: Wall time of the steps.
        phases: Wall time by phase; empty where phases are not known.
        regions: Wall time by region that the program has named.
        now: Phases that its processes are in.
        progress_seconds: Time of its last step or change of phase, Unix seconds; 0 where that is not known.
        job: Identity of its job; empty where that is not known.
    """

    steps: float = 0.0
    items: float = 0.0
    seconds: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    regions: dict[str, float] = field(default_factory=dict)
    now: set[str] = field(default_factory=set)
    progress_seconds: float = 0.0
    job: str = ""


@dataclass(slots=True)
class KernelTotals:
    """Launches, timed launches and their seconds: of one series, or a sum."""

    launches: float = 0.0
    count: float = 0.0
    seconds: float = 0.0

    def add(self, other: "KernelTotals", sign: int = 1) -> None:
        """Add others to these, or subtract them."""
        self.launches += sign * other.launches
        self.count += sign * other.count
        self.seconds += sign * other.seconds


@dataclass(slots=True)
class KernelStats:
    """One kernel over all its GPUs and ranks, since the beginning.

    Attributes:
        series: Totals of each series: one may leave the page, or begin again.
        buckets: Cumulative counts by bound, of the series that have finite bounds.
        with_buckets: These series.
    """

    launches: float = 0.0
    count: float = 0.0
    seconds: float = 0.0
    series: dict[SeriesKey, KernelTotals] = field(default_factory=dict)
    collective: bool = False
    programs: set[str] = field(default_factory=set)
    buckets: dict[float, float] = field(default_factory=lambda: defaultdict(float))
    with_buckets: set[SeriesKey] = field(default_factory=set)

    def quantile_seconds(self, quantile: float) -> float | None:
        """A quantile of the durations, within one bucket; None without buckets."""
        buckets = sorted(self.buckets.items())
        if not buckets or buckets[-1][1] <= 0 or len(buckets) == 1:
            return None
        rank = quantile * buckets[-1][1]
        if rank <= buckets[0][1]:
            return buckets[0][0]
        for (low, below), (high, upto) in pairwise(buckets):
            if rank <= upto:
                if math.isinf(high):
                    return low
                if low <= 0:
                    return high
                # Bounds are powers of two, so the interpolation within a bucket is geometric.
                return float(low * (high / low) ** ((rank - below) / (upto - below)))
        return None


@dataclass(slots=True)
class ScrapedPage:
    """The content of `/metrics` at one time."""

    # (Hostname, gpu) to DCGM name to value.
    gpus: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    # Label `kernel` to its totals.
    kernels: dict[str, KernelStats] = field(default_factory=dict)
    # Names of the programs seen, with their launches.
    programs: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    # Labels of a program on a GPU to its times; programs of other producers have none.
    times: dict[SeriesKey, ProgramTimes] = field(default_factory=lambda: defaultdict(ProgramTimes))
    # Labels of a kernel of a program to its launch configuration, and of a program to the versions that it runs on.
    works: dict[SeriesKey, SeriesKey] = field(default_factory=dict)
    # Labels of a program on a GPU, of one rank, to its steps; programs that made none have no entry.
    steps: dict[SeriesKey, StepTotals] = field(default_factory=lambda: defaultdict(StepTotals))
    # Labels of a program on a GPU to its live processes.
    processes: dict[SeriesKey, float] = field(default_factory=dict)
    # Values of the label `source` on GPUs, programs and kernels; empty for live data.
    sources: set[str] = field(default_factory=set)
    # Number of forecast series.
    forecasts: int = 0
    # Series about which predictors can say whether a breach is probable.
    judged: int = 0
    # Labels and probability of each predicted degradation.
    degradations: list[tuple[dict[str, str], float]] = field(default_factory=list)
    # Labels and median seconds to the threshold of each.
    seconds_left: list[tuple[dict[str, str], float]] = field(default_factory=list)
    # Labels of each series that has crossed its threshold, and when, in Unix time.
    crossed: list[tuple[dict[str, str], float]] = field(default_factory=list)
    # (program, tunable) to the number of hints that were issued.
    hints: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    # Labels of each open hint.
    open_hints: list[dict[str, str]] = field(default_factory=list)
    # Hint id to the kernel time that is expected with the hint, relative to before.
    expected_ratios: dict[str, float] = field(default_factory=dict)
    # (program, tunable, state) to the number of times that a hint came to this state.
    outcomes: dict[tuple[str, str, str], float] = field(default_factory=lambda: defaultdict(float))
    # (program, tunable) to the measured kernel time with the hint, relative to before.
    ratios: dict[tuple[str, str], float] = field(default_factory=dict)
    # (program, tunable) to the tunable's present value.
    tunables: dict[tuple[str, str], str] = field(default_factory=dict)
    # (job, instance) to whether it is up.
    producers: dict[tuple[str, str], bool] = field(default_factory=dict)
    # Time since the newest sample of any producer; None where the page has none.
    age_seconds: float | None = None
    # Completed intervals of an exporter, or of a predictor's work; None where the page has none.
    ticks: float | None = None
    # The bridge's own metrics, summed over their labels.
    bridge: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def launches(self) -> float:
        """All kernel launches."""
        return sum(stats.launches for stats in self.kernels.values())

    @property
    def kernel_seconds(self) -> float:
        """All GPU time of timed launches."""
        return sum(stats.seconds for stats in self.kernels.values())

    @property
    def predictor_is_up(self) -> bool:
        """Whether a predictor reports to this bridge now."""
        return any(up for (job, _), up in self.producers.items() if job == PREDICTOR_JOB)

    @property
    def is_bridge(self) -> bool:
        """Whether this is a bridge's page."""
        return bool(self.bridge)

    @property
    def is_ours(self) -> bool:
        """Whether the page has anything that is shown."""
        return bool(self.bridge or self.gpus or self.kernels or self.steps or self.ticks is not None)

    def hottest(self, count: int) -> list[tuple[str, KernelStats]]:
        """The kernels with the most GPU time."""
        return sorted(self.kernels.items(), key=lambda item: -item[1].seconds)[:count]


def read(exposition: str) -> ScrapedPage:
    """Read a text exposition; families that are not shown are not parsed.

    Raises:
        PageError: A line of ours is malformed, as where an answer was cut.
    """
    try:
        return page_of(samples(line for line in exposition.split(LINE_FEED) if line.startswith(_SHOWN)))
    except (DecodeError, ValueError, KeyError, OverflowError) as error:
        raise PageError(f"the page is no text exposition: {error}") from None


def page_of(shown: Iterable[TextSample]) -> ScrapedPage:
    """The content of a page with these samples; those that are not shown add nothing."""
    page = ScrapedPage()
    for sample in shown:
        _add(page, sample)
    return page


def _add(page: ScrapedPage, sample: TextSample) -> None:
    name, labels = sample.name, sample.labels
    if name.startswith("DCGM_") or name == gpu.GPU_UP.prometheus_name:
        key = (labels.get("Hostname", ""), labels.get("gpu", ""))
        page.gpus.setdefault(key, {})[own_name(name)] = sample.value
        page.sources.add(labels.get("source", ""))
    elif name.startswith("kernelcast_bridge_"):
        page.bridge[name] += sample.value
    elif name in {exporter.TICKS.prometheus_name, predictor.SWEEPS.prometheus_name}:
        page.ticks = (page.ticks or 0.0) + sample.value
    elif name.startswith("kernelcast_producer_"):
        _add_producer(page, sample)
    elif name.startswith("kernelcast_probe_"):
        _add_times(page, sample)
    elif name.startswith(("kernelcast_hint_", "kernelcast_tunable")):
        _add_hint(page, sample)
    elif name.startswith(("kernelcast_forecast_", "kernelcast_degradation_")):
        _add_forecast(page, sample)
    elif name.startswith(("kernelcast_program_", _REGION_WALL)):
        _add_steps(page, sample)
    elif "kernel" in labels and not name.startswith("kernelcast_"):
        _add_kernel(page, sample)


def _add_times(page: ScrapedPage, sample: TextSample) -> None:
    times = page.times[program_of(sample.labels)]
    if sample.name == kernel.PROBE_RUNNING.prometheus_name:
        times.running += sample.value
    elif sample.name == kernel.PROBE_MEASURED.prometheus_name:
        times.measured += sample.value


def _add_forecast(page: ScrapedPage, sample: TextSample) -> None:
    if sample.name == forecast.FORECAST_VALUE.prometheus_name:
        page.forecasts += 1
    elif sample.name == forecast.JUDGED_SERIES.prometheus_name:
        page.judged += int(sample.value)
    elif sample.name == forecast.DEGRADATION_PROBABILITY.prometheus_name:
        page.degradations.append((sample.labels, sample.value))
    elif sample.name == forecast.DEGRADATION_TIME.prometheus_name and sample.labels.get("quantile") == "0.5":
        page.seconds_left.append((sample.labels, sample.value))
    elif sample.name == forecast.DEGRADATION_CROSSED.prometheus_name:
        page.crossed.append((sample.labels, sample.value))


def _add_producer(page: ScrapedPage, sample: TextSample) -> None:
    key = (sample.labels.get("job", ""), sample.labels.get("instance", ""))
    if sample.name == bridge.PRODUCER_UP.prometheus_name:
        page.producers[key] = bool(sample.value)
    elif sample.name == bridge.PRODUCER_AGE.prometheus_name:
        page.age_seconds = sample.value if page.age_seconds is None else min(page.age_seconds, sample.value)


def _add_hint(page: ScrapedPage, sample: TextSample) -> None:
    labels = sample.labels
    key = (labels.get("program", ""), labels.get("tunable", ""))
    if sample.name == forecast.HINTS_ISSUED.prometheus_name:
        page.hints[key] += sample.value
    elif sample.name == forecast.HINT_OPEN.prometheus_name:
        page.open_hints.append(labels)
    elif sample.name == forecast.HINT_EXPECTED.prometheus_name and labels.get("bound") == "mean":
        page.expected_ratios[labels.get("hint_id", "")] = sample.value
    elif sample.name == kernel.HINT_OUTCOMES.prometheus_name:
        page.outcomes[*key, labels.get("state", "")] += sample.value
    elif sample.name == kernel.HINT_MEASURED.prometheus_name:
        page.ratios[key] = sample.value
    elif sample.name == kernel.TUNABLE_INFO.prometheus_name:
        page.tunables[key] = labels.get("value", "")


def _add_kernel(page: ScrapedPage, sample: TextSample) -> None:
    labels = sample.labels
    if sample.name == kernel.KERNEL_INFO.prometheus_name:
        page.works[work_of(labels)] = tuple(sorted(labels.items()))
        return
    stats = page.kernels.setdefault(labels["kernel"], KernelStats())
    program = labels.get("program", "")
    stats.programs.add(program)
    stats.collective = stats.collective or labels.get("kernel_class") == "collective"
    page.sources.add(labels.get("source", ""))
    if sample.name == f"{_DURATION}_bucket":
        _add_bucket(stats, labels, sample.value)
        return
    series = stats.series.setdefault(tuple(sorted(labels.items())), KernelTotals())
    if sample.name == kernel.LAUNCHES.prometheus_name:
        stats.launches += sample.value
        series.launches += sample.value
        page.programs[program] += sample.value
    elif sample.name == f"{_DURATION}_sum":
        stats.seconds += sample.value
        series.seconds += sample.value
    elif sample.name == f"{_DURATION}_count":
        stats.count += sample.value
        series.count += sample.value


def _add_steps(page: ScrapedPage, sample: TextSample) -> None:
    """Add a sample of a program's steps, versions or processes; rows about its memory and compilations add nothing."""
    name, labels, value = sample.name, sample.labels, sample.value
    if name == kernel.PROGRAM_INFO.prometheus_name:
        page.works[program_of(labels)] = tuple(sorted(labels.items()))
    elif name == kernel.PROCESSES.prometheus_name:
        page.processes[program_of(labels)] = value
    is_other_gpu = name == _REGION_WALL and not value  # a process reports its regions on its first GPU, and 0 on others
    if name not in _STEP_NAMES or is_other_gpu:
        return
    page.sources.add(labels.get("source", ""))
    totals = page.steps[program_of(labels)]
    if name == kernel.STEPS.prometheus_name:
        totals.steps += value
    elif name == kernel.ITEMS.prometheus_name:
        totals.items += value
    elif name == kernel.STEP_SECONDS.prometheus_name:
        totals.seconds += value
    elif name in _PARTS:
        label = _PARTS[name]
        seconds_by_part, part = (totals.phases if label == "phase" else totals.regions), labels.get(label, "")
        seconds_by_part[part] = seconds_by_part.get(part, 0.0) + value
    elif name == kernel.PHASE.prometheus_name:
        totals.now.add(labels.get("phase", ""))
    elif name == kernel.PROGRESS.prometheus_name:
        totals.progress_seconds = value
    else:
        totals.job = labels.get("job", "")


def _add_bucket(stats: KernelStats, labels: dict[str, str], value: float) -> None:
    """Add a bucket. A series that has the last one alone, without a finite bound, says nothing about durations."""
    bound, series = float(labels["le"]), tuple(sorted(item for item in labels.items() if item[0] != "le"))
    if not math.isinf(bound):
        stats.with_buckets.add(series)
    if series in stats.with_buckets:
        stats.buckets[bound] += value
