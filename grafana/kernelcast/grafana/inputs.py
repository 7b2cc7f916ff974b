"""Inputs of the rules that differ between sites: job names, services that run, and thresholds. `site` fills them."""

from dataclasses import dataclass
from typing import Final

BRIDGE_JOB: Final = "kernelcast-bridge"
EXPORTER_JOB: Final = "kernelcast-exporter"
PREDICTOR_JOB: Final = "kernelcast-predictor"
DCGM_EXPORTER_JOB: Final = "dcgm-exporter"


@dataclass(frozen=True, slots=True)
class Jobs:
    """Jobs under which Prometheus scrapes the daemons; None for a daemon that the site does not run.

    Attributes:
        bridge: From Kafka to Prometheus; without it exporters are scraped alone.
        predictor: Forecasts, degradation, hints.
        exporter: Exporters' own pages, where Prometheus scrapes them.
    """

    bridge: str | None = BRIDGE_JOB
    predictor: str | None = PREDICTOR_JOB
    exporter: str | None = EXPORTER_JOB


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Values from which alerts fire.

    Attributes:
        kernel_slower_ratio: Mean duration over that of a day before.
        kernel_share_ratio: Share of a program's GPU time below which a slower kernel sends no message.
        memory_used_ratio: Share of usable GPU memory.
        heat_ratio: Share of time lost to heat.
        straggler_ratio: Share of time that a rank waits less in collectives than the median rank.
        idle_hours: Time for which a GPU with an owner is idle.
        probe_overhead_ratio: Share of a thread's time that a probe takes.
        lag_messages: Messages that wait on Kafka.
        clock_ahead_seconds: Time by which a producer's clock is ahead of Kafka's.
        breach_soon_seconds: Time within which a breach with a probability of .9 is critical.
        forecast_coverage_ratio: Coverage of 95 % intervals below which forecasts are unreliable.
    """

    kernel_slower_ratio: float = 1.2
    kernel_share_ratio: float = 0.02
    memory_used_ratio: float = 0.95
    heat_ratio: float = 0.1
    straggler_ratio: float = 0.2
    idle_hours: float = 1.0
    probe_overhead_ratio: float = 0.02
    lag_messages: float = 1000.0
    clock_ahead_seconds: float = 30.0
    breach_soon_seconds: float = 3600.0
    forecast_coverage_ratio: float = 0.8
