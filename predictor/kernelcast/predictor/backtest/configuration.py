"""The predictor's settings as far as a backtest applies them, for `--compare` and `--calendar` of the command."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from kernelcast.predictor.backtest.breaches import LONGEST_SECONDS, BreachOptions
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.runtime.settings.service import load
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.errors import ConfigurationError

APPLIED: Final = frozenset(
    {"holidays", "horizons_seconds", "judge.kernel_slowdown_ratio", "judge.thresholds", "time_zone"}
)
"""Settings of the predictor that a backtest applies."""
NOT_ALERTING: Final = ("kafka.", "log.", "web.", "hints.", "client_id", "group_id")
"""Beginnings of the paths of settings that change no alert."""


def read_settings(path: Path, *, option: str = "--compare") -> PredictorSettings:
    """Read the predictor's section of a settings file; flags and the environment do not count.

    Raises:
        ConfigurationError: Lists every problem found, after the file's name.
    """
    try:
        return load("predictor", PredictorSettings, path=path, flags={}, environ={})
    except ConfigurationError as error:
        raise ConfigurationError("\n".join(f"{option} {path}: {line}" for line in str(error).splitlines())) from None


def configured(options: BreachOptions, settings: PredictorSettings, metric: str) -> BreachOptions:
    """The definition of a breach under a configuration.

    Args:
        options: From the command line; it applies to both configurations.
        settings: The configuration.
        metric: Prometheus name of the series.

    Raises:
        ConfigurationError: No horizon of the configuration can be forecast.
    """
    meaning = options.meaning
    if metric == kernel.DURATION.prometheus_name:
        meaning = replace(meaning, own_ratio=1.0 + settings.judge.kernel_slowdown_ratio)
    horizons = settings.horizons_seconds if "horizons_seconds" in settings.model_fields_set else None
    if horizons is not None and horizons[0] > LONGEST_SECONDS:
        raise ConfigurationError(
            f"the shortest of predictor.horizons_seconds is {horizons[0]:g}; an alert looks ahead at most "
            f"{LONGEST_SECONDS:g} s; add a shorter one"
        )
    threshold = settings.judge.thresholds.get(metric)
    return replace(
        options,
        threshold=threshold,
        meaning=meaning,
        alarm_horizons_seconds=horizons,
        local_time=settings.local_time,
    )


def ignored_differences(old: PredictorSettings, new: PredictorSettings) -> list[str]:
    """Settings in which two configurations differ, and which a backtest does not apply, by path."""
    before, after = (dict(_flat("", each.model_dump())) for each in (old, new))
    return sorted(
        path
        for path in before.keys() | after.keys()
        if before.get(path) != after.get(path) and path not in APPLIED and not path.startswith(NOT_ALERTING)
    )


def _flat(prefix: str, values: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and f"{prefix}{name}" not in APPLIED:
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value
