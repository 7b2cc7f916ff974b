"""Looks at a Prometheus before the predictor starts: whether it answers, what it has, and how often it scrapes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.prometheus import RangeSeries
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.predictor.without_kafka.admission import admitted
from kernelcast.predictor.without_kafka.measures import THROTTLED
from kernelcast.predictor.without_kafka.remembered import InstantReader
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.catalogue import OWN_NAMES
from kernelcast.wire.catalogue.devices.device import GPU_TEMP
from kernelcast.wire.errors import PrometheusError

GRIDS_SECONDS: Final = (10.0, 12.0, 15.0, 20.0, 25.0, 30.0, 50.0, 60.0, 75.0, 100.0, 150.0, 300.0)
"""Intervals of which a block of five minutes holds a whole number."""
WAIT_SECONDS: Final = 10.0
"""Time between two attempts while Prometheus starts, throttles or has no series yet."""
STARTING: Final = (THROTTLED, 500, 502, 503, 504)
"""Answers that a Prometheus gives while it starts, or is overloaded."""
SAMPLES_MINUTES: Final = 10
NEWEST_SAMPLES: Final = 5
"""Samples whose distances tell how often Prometheus scrapes now."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PresentSeries:
    """What a Prometheus has.

    Attributes:
        series: Number of series by metric, of those that are admitted.
        scrape_seconds: Time between two samples; None if it has too few to tell.
    """

    series: dict[str, int]
    scrape_seconds: float | None


def look(client: InstantReader, settings: PredictorSettings, now_seconds: float) -> PresentSeries:
    """Ask for the series of admitted metrics.

    Raises:
        PrometheusError: It does not answer, refuses, or is no Prometheus.
    """
    rows = admitted(settings)
    names = [*rows, *(other for other, own in OWN_NAMES.items() if own in rows)]
    chosen = f'__name__=~"{"|".join(names)}"' + (
        f",{settings.prometheus.matchers}" if settings.prometheus.matchers else ""
    )
    counts = client.query(f"count by (__name__) ({{{chosen}}})", at_seconds=now_seconds)
    series = {dict(count.labels).get("__name__", ""): int(count.values[0]) for count in counts}
    if not series:
        return PresentSeries({}, None)
    temperature = GPU_TEMP.prometheus_name
    name = temperature if temperature in series else max(series, key=lambda metric: series[metric])
    matchers = settings.prometheus.matchers
    newest = client.query(f"topk(1, timestamp({name}{{{matchers}}}))", at_seconds=now_seconds)
    return PresentSeries(series, _scrape_seconds(client, name, newest, now_seconds) if newest else None)


def _scrape_seconds(client: InstantReader, name: str, newest: list[RangeSeries], now_seconds: float) -> float | None:
    labels = ",".join(f'{key}="{_quoted(value)}"' for key, value in newest[0].labels if key != "__name__")
    samples = client.query(f"{name}{{{labels}}}[{SAMPLES_MINUTES}m]", at_seconds=now_seconds)
    times = samples[0].seconds if samples else np.zeros(0)
    # The shortest distance: others may hold a failed scrape, or the time before the interval was changed.
    return float(np.diff(times[-NEWEST_SAMPLES:]).min()) if len(times) > NEWEST_SAMPLES // 2 else None


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def on_grid(settings: PredictorSettings, scrape_seconds: float | None) -> PredictorSettings:
    """The settings with an interval of at least the time between two samples, unless they set it themselves."""
    if "interval_seconds" in settings.model_fields_set or scrape_seconds is None:
        return settings
    tolerated = 0.95 * scrape_seconds  # scrapes come some milliseconds early or late
    interval = next((grid for grid in GRIDS_SECONDS if grid >= tolerated), GRIDS_SECONDS[-1])
    return settings.model_copy(update={"interval_seconds": interval})


def wait_for_series(
    client: InstantReader,
    settings: PredictorSettings,
    *,
    wait: Callable[[float], bool],
    clock_seconds: Callable[[], float],
) -> PresentSeries | None:
    """Look until there is a series; None where `wait` says that it is to end.

    Raises:
        PrometheusError: It refuses, or is no Prometheus; one that is away, starts or throttles is awaited.
    """
    while True:
        seconds = WAIT_SECONDS
        try:
            present = look(client, settings, clock_seconds())
            if present.series:
                _log.info(
                    "series found",
                    metrics=len(present.series),
                    series=sum(present.series.values()),
                    scrape_seconds=present.scrape_seconds,
                )
                return present
            _log.error("no series found", reason=nothing_found(settings))
        except PrometheusError as error:
            if error.status not in STARTING and not error.is_away:
                raise
            seconds = max(error.retry_after_seconds, WAIT_SECONDS)
            _log.warning("Prometheus is not ready", reason=str(error), again_seconds=seconds)
        if wait(seconds):
            return None


def nothing_found(settings: PredictorSettings) -> str:
    """What was looked for, and what to do."""
    chosen = f" with {{{settings.prometheus.matchers}}}" if settings.prometheus.matchers else ""
    return (
        f"{len(admitted(settings))} metrics such as {GPU_TEMP.prometheus_name}{chosen} have no series in this "
        "Prometheus; let it scrape dcgm-exporter or kernelcast's exporter, or correct url, matchers and tenant"
    )
