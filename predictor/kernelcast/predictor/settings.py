"""Settings of the predictor with their defaults and limits."""

import socket
from typing import Annotated, Final

from pydantic import Field, field_validator, model_validator

from kernelcast.predictor.alarms.settings import AlarmSettings
from kernelcast.runtime.settings.service import Remedy, Section, ServiceSettings, WebSettings

BLOCKS: Final = 24
"""Block medians into which screening divides a window; fewer observations than blocks cannot be screened."""

NANOSECONDS_PER_SECOND: Final = 1_000_000_000


class HintSettings(Section):
    """Settings for issuing tuning hints.

    Attributes:
        enabled: Whether at all.
        expires_seconds: How long a program may still act on a hint.
        cooldown_seconds: How long a hint that a program kept, rolled back or refused is not repeated.
        min_share_ratio: Share of its program's GPU time below which a kernel is not worth a hint.
    """

    enabled: bool = True
    expires_seconds: Annotated[float, Field(ge=10), Remedy("raise it above the export interval")] = 600.0
    cooldown_seconds: Annotated[float, Field(ge=0)] = 86_400.0
    min_share_ratio: Annotated[float, Field(ge=0, le=1)] = 0.02


class JudgeSettings(Section):
    """Thresholds that separate a degradation from normal operation.

    Attributes:
        thresholds: Own thresholds by Prometheus name, in the series' unit; they override the device's thresholds.
        memory_full_ratio: Share of the frame buffer at which it counts as full.
        kernel_slowdown_ratio: How much longer than its baseline a kernel may take.
        wide_baseline_ratio: Spread over median above which a baseline says nothing and the predictor abstains.
        stable_load_ratio: Change of power or utilisation up to which load counts as stable.
        drift_z: Mann-Kendall z above which a drift counts.
        raise_sweeps: Sweeps in a row that must see a drift before it is reported.
        clear_sweeps: Sweeps in a row without it after which it is no longer reported.
        max_extrapolation: Longest horizon that is forecast, in multiples of the history behind the forecast.
    """

    thresholds: dict[str, float] = Field(default_factory=dict)
    memory_full_ratio: Annotated[float, Field(gt=0, le=1)] = 0.97
    kernel_slowdown_ratio: Annotated[float, Field(ge=0.02)] = 0.2
    wide_baseline_ratio: Annotated[float, Field(gt=0)] = 0.25
    stable_load_ratio: Annotated[float, Field(gt=0, le=1)] = 0.1
    drift_z: Annotated[float, Field(ge=2)] = 3.5
    raise_sweeps: Annotated[int, Field(ge=1)] = 2
    clear_sweeps: Annotated[int, Field(ge=1)] = 3
    max_extrapolation: Annotated[float, Field(gt=0)] = 8.0


class PredictorSettings(ServiceSettings):
    """Settings of `kernelcast predictor`.

    Attributes:
        group_id: Kafka's consumer group; predictors of one group share the partitions.
        client_id: Its name as a writer; two predictors must not have the same.
        interval_seconds: The grid observations are put on; at least the exporters' interval.
        window_points: Grid points kept per series.
        min_points: Observations before a series is judged.
        horizons_seconds: How far ahead.
        sweep_every_seconds: How often all series are screened.
        max_fits_per_sweep: Models fitted per sweep, the nearest to their threshold first.
        fit_share_ratio: Share of the time between sweeps that fitting may take.
        refit_every_seconds: How long fitted parameters are used before they are estimated again.
        max_series: Series kept; further ones are refused and counted.
        expire_seconds: Time without a point after which a series is dropped.
        snapshot_every_seconds: How often windows are written to `kernelcast.state`.
        max_lag_messages: Messages per partition beyond which the predictor skips to its tail.
    """

    web: WebSettings = WebSettings(listen_address=":19402")
    group_id: str = Field(default="kernelcast-predictor", min_length=1)
    client_id: str = Field(default_factory=socket.gethostname, min_length=1)
    interval_seconds: Annotated[float, Field(ge=0.1), Remedy("raise it to the exporters' interval")] = 10.0
    window_points: Annotated[int, Field(ge=2 * BLOCKS, le=10_000)] = 240
    min_points: Annotated[int, Field(ge=BLOCKS), Remedy("the screen needs one observation a block")] = 30
    horizons_seconds: tuple[float, ...] = (300.0, 3600.0)
    sweep_every_seconds: Annotated[float, Field(ge=0.1)] = 30.0
    max_fits_per_sweep: Annotated[int, Field(ge=0)] = 500
    fit_share_ratio: Annotated[float, Field(gt=0, le=1)] = 0.5
    refit_every_seconds: Annotated[float, Field(ge=0)] = 300.0
    max_series: Annotated[int, Field(ge=1)] = 100_000
    expire_seconds: Annotated[float, Field(gt=0)] = 3600.0
    snapshot_every_seconds: Annotated[float, Field(ge=1)] = 60.0
    max_lag_messages: Annotated[int, Field(ge=1)] = 100_000
    judge: JudgeSettings = JudgeSettings()
    alarms: AlarmSettings = AlarmSettings()
    hints: HintSettings = HintSettings()

    @field_validator("horizons_seconds")
    @classmethod
    def _must_be_ascending(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not value or any(later <= earlier for earlier, later in zip((0.0, *value), value, strict=False)):
            raise ValueError("horizons must be above 0 and ascending; list them from the nearest to the farthest")
        return value

    @model_validator(mode="after")
    def _must_fit_the_window(self) -> "PredictorSettings":
        if self.min_points > self.window_points:
            raise ValueError(
                f"min_points is {self.min_points}; the window has {self.window_points}; lower it or widen the window"
            )
        if self.horizons_seconds[0] < self.interval_seconds:
            raise ValueError(
                f"the nearest of horizons_seconds is {self.horizons_seconds[0]:g}; a forecast reaches at least one "
                f"interval_seconds, {self.interval_seconds:g}; raise the horizon"
            )
        return self

    @property
    def interval_ns(self) -> int:
        """The grid's step in nanoseconds."""
        return round(self.interval_seconds * NANOSECONDS_PER_SECOND)
