"""Reads the bridge's page for the demo: GPUs, hottest kernels, forecasts, tunables and the health of the pipeline."""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from kernelcast.wire.catalogue import forecast, forecast_scores, kernel
from kernelcast.wire.catalogue.devices import device

FAMILIES: Final = (*device.ROWS, *kernel.ROWS, *forecast.ROWS, *forecast_scores.ROWS)
_SHOWN: Final = (*(row.prometheus_name for row in FAMILIES), "kernelcast_bridge_")
_DURATION: Final = kernel.DURATION.prometheus_name


@dataclass(slots=True)
class KernelStats:
    """One kernel over all its GPUs and ranks, since the beginning."""

    launches: float = 0.0
    count: float = 0.0
    seconds: float = 0.0
    buckets: dict[float, float] = field(default_factory=lambda: defaultdict(float))

    def quantile_seconds(self, quantile: float) -> float | None:
        """A quantile of the durations, within one rung of the ladder; None without buckets."""
        rungs = sorted(self.buckets.items())
        if not rungs or rungs[-1][1] <= 0 or len(rungs) == 1:
            return None
        rank = quantile * rungs[-1][1]
        if rank <= rungs[0][1]:
            return rungs[0][0]
        for (low, below), (high, upto) in pairwise(rungs):
            if rank <= upto:
                if math.isinf(high):
                    return low
                return float(low * (high / low) ** ((rank - below) / (upto - below)))
        return None


@dataclass(slots=True)
class ScrapedPage:
    """One look at `/metrics`.

    Attributes:
        gpus: (Hostname, gpu) to DCGM name to value.
        kernels: Label `kernel` to its totals.
        programs: Names of the programs seen.
        forecasts: How many forecast series there are.
        degradations: Labels and probability of each predicted degradation.
        tunables: Labels of each registered tunable.
        bridge: The bridge's own metrics, summed over their labels.
    """

    gpus: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    kernels: dict[str, KernelStats] = field(default_factory=dict)
    programs: set[str] = field(default_factory=set)
    forecasts: int = 0
    degradations: list[tuple[dict[str, str], float]] = field(default_factory=list)
    tunables: list[dict[str, str]] = field(default_factory=list)
    bridge: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def launches(self) -> float:
        """All kernel launches."""
        return sum(stats.launches for stats in self.kernels.values())

    @property
    def kernel_seconds(self) -> float:
        """All GPU time of timed launches."""
        return sum(stats.seconds for stats in self.kernels.values())

    def hottest(self, count: int) -> list[tuple[str, KernelStats]]:
        """The kernels with the most GPU time."""
        return sorted(self.kernels.items(), key=lambda item: -item[1].seconds)[:count]


def read(exposition: str) -> ScrapedPage:
    """Read a text exposition; families that the demo does not show are not parsed."""
    snapshot = ScrapedPage()
    for family in text_string_to_metric_families(_shown(exposition.splitlines(keepends=True))):
        for sample in family.samples:
            _add(snapshot, sample)
    return snapshot


def _shown(lines: Iterable[str]) -> str:
    return "".join(line for line in lines if not line.startswith("#") and line.startswith(_SHOWN))


def _add(snapshot: ScrapedPage, sample: Sample) -> None:
    name, labels = sample.name, sample.labels
    if name.startswith("DCGM_"):
        key = (labels.get("Hostname", ""), labels.get("gpu", ""))
        snapshot.gpus.setdefault(key, {})[name] = sample.value
    elif name.startswith("kernelcast_bridge_"):
        snapshot.bridge[name] += sample.value
    elif name == forecast.FORECAST_VALUE.prometheus_name:
        snapshot.forecasts += 1
    elif name == forecast.DEGRADATION_PROBABILITY.prometheus_name:
        snapshot.degradations.append((labels, sample.value))
    elif name == kernel.TUNABLE_INFO.prometheus_name:
        snapshot.tunables.append(labels)
    elif "kernel" in labels:
        _add_kernel(snapshot, sample)


def _add_kernel(snapshot: ScrapedPage, sample: Sample) -> None:
    stats = snapshot.kernels.setdefault(sample.labels["kernel"], KernelStats())
    snapshot.programs.add(sample.labels.get("program", ""))
    if sample.name == kernel.LAUNCHES.prometheus_name:
        stats.launches += sample.value
    elif sample.name == f"{_DURATION}_sum":
        stats.seconds += sample.value
    elif sample.name == f"{_DURATION}_count":
        stats.count += sample.value
    elif sample.name == f"{_DURATION}_bucket":
        stats.buckets[float(sample.labels["le"])] += sample.value
