"""Settings of the predictor with their defaults and limits."""

import re
import socket
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Final
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field, model_validator

from kernelcast.predictor.access import HttpAccess
from kernelcast.predictor.alarms.settings import AlarmSettings
from kernelcast.predictor.forecasting.deep.settings import DeepSettings
from kernelcast.predictor.local_time import LocalTime
from kernelcast.predictor.prometheus import split_address
from kernelcast.runtime.settings.service import OptionName, Remedy, Section, ServiceSettings, WebSettings
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.tuning.policy import Mode, Policy, check_policy

BLOCKS: Final = 24
"""Block medians into which screening divides a window; fewer observations than blocks cannot be screened."""

NANOSECONDS_PER_SECOND: Final = 1_000_000_000


HORIZONS_SECONDS: Final = (300.0, 900.0, 3600.0, 14_400.0, 86_400.0)
"""Default horizons: five minutes, a quarter of an hour, one and four hours, and a day."""
BREACH_SECONDS: Final = 300.0
"""Default length of a block, over which the mean at or beyond the limit is a breach."""
REACH_BLOCKS: Final = 144
"""Blocks into which the longest horizon is divided by default, where they are shorter than `BREACH_SECONDS`."""
LEAST_BLOCKS: Final = 4
"""Blocks that a window holds at least, by default."""


def _must_ascend(value: tuple[float, ...]) -> tuple[float, ...]:
    if not value or any(later <= earlier for earlier, later in zip((0.0, *value), value, strict=False)):
        raise ValueError("horizons must be above 0 and ascending; list them from the nearest to the farthest")
    return value


def _must_be_http(url: str) -> str:
    try:
        if url:
            split_address(url)
    except ConfigurationError:
        raise ValueError("it is no address of a Prometheus; write it as http://HOST:PORT") from None
    return url


def _must_be_a_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (LookupError, OSError, ValueError) as error:
        raise ValueError(f"{name!r} is no time zone; write its IANA name, such as Europe/Berlin") from error
    return name


def _must_compile(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"{value!r} is no regular expression: {error}; correct it") from error
    return value


class HintSettings(Section):
    """Settings for issuing tuning hints.

    Attributes:
        enabled: Whether at all.
        expires_seconds: How long a program may still act on a hint.
        approval_seconds: How long a hint that changes results waits for a person's approval.
        cooldown_seconds: How long a hint that a program kept, rolled back or refused is not repeated.
        min_share_ratio: Share of its program's GPU time below which a kernel is not worth a hint.
        policy: Mode by program, `*` for the others: `off` tries nothing, `propose` only approved hints, `tune` all
            that are due. Exporters apply it, also to the spaces that programs search by themselves.
        quiet_hours: Times of day, UTC, in which nothing is tried, such as `22:00-06:00`.
    """

    enabled: bool = True
    expires_seconds: Annotated[float, Field(ge=10), Remedy("raise it above the export interval")] = 600.0
    approval_seconds: Annotated[float, Field(ge=60), Remedy("people need time to answer")] = 7 * 86_400.0
    cooldown_seconds: Annotated[float, Field(ge=0)] = 86_400.0
    min_share_ratio: Annotated[float, Field(ge=0, le=1)] = 0.02
    policy: dict[str, Mode] = Field(default_factory=dict)
    quiet_hours: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _must_be_a_policy(self) -> "HintSettings":
        check_policy(self.policy, self.quiet_hours)
        return self

    def site_policy(self, time_ns: int = 0) -> Policy:
        """Return the policy as it travels."""
        return Policy(self.policy, self.quiet_hours, time_ns)


class JudgeSettings(Section):
    """Thresholds that separate a degradation from normal operation.

    Attributes:
        thresholds: Own thresholds by Prometheus name, in the series' unit; they override the device's thresholds.
        memory_full_ratio: Share of the frame buffer at which it counts as full.
        kernel_slowdown_ratio: How much longer than its baseline a kernel may take.
        wide_baseline_ratio: Noise of a kernel, relative to its limit, above which the predictor abstains.
        max_extrapolation: Longest horizon that is forecast, in multiples of the history behind the forecast.
    """

    thresholds: dict[str, float] = Field(default_factory=dict)
    memory_full_ratio: Annotated[float, Field(gt=0, le=1)] = 0.97
    kernel_slowdown_ratio: Annotated[float, Field(ge=0.02)] = 0.2
    wide_baseline_ratio: Annotated[float, Field(gt=0)] = 0.25
    max_extrapolation: Annotated[float, Field(gt=0)] = 8.0


Pattern = Annotated[str, AfterValidator(_must_compile)]


class SeriesMatcher(Section):
    """Selects series by regular expressions that match whole values, as in Prometheus.

    Attributes:
        metric: The series' Prometheus name.
        labels: By label; a series without the label has the empty value.
    """

    metric: Pattern = ".*"
    labels: dict[str, Pattern] = Field(default_factory=dict)


class LimitSettings(SeriesMatcher):
    """Threshold and horizons of the series that match; the first entry that matches a series applies.

    Attributes:
        threshold: In the series' unit; without it, the limit is that of the metric.
        below: Whether values at or below the threshold are a breach.
        horizons_seconds: How far ahead; without it, those of the predictor.
    """

    threshold: float | None = None
    below: bool = False
    horizons_seconds: Annotated[tuple[float, ...], AfterValidator(_must_ascend)] | None = None


def _in_utc(value: datetime) -> datetime:
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


class CalendarSettings(SeriesMatcher):
    """A maintenance of the series that match: what happens then is neither learnt nor alarmed.

    Attributes:
        begin: Begin, such as `2026-12-24T00:00:00Z`; UTC without a zone.
        end: End.
        every_seconds: Time after which it recurs, such as 604800 for a week; without it, it happens once.
    """

    begin: Annotated[datetime, AfterValidator(_in_utc)]
    end: Annotated[datetime, AfterValidator(_in_utc)]
    every_seconds: Annotated[float, Field(ge=60)] | None = None

    @model_validator(mode="after")
    def _must_be_a_period(self) -> "CalendarSettings":
        lasting = (self.end - self.begin).total_seconds()
        if lasting < 1 or lasting > (self.every_seconds or lasting):
            raise ValueError(
                f"it lasts from {self.begin} to {self.end}; it must last a second at least, and at most every_seconds"
            )
        return self


class PrometheusSettings(Section):
    """Settings of the Prometheus that has the past of the series, or all of it.

    Attributes:
        url: Its address, such as `https://prometheus:9090`; empty for none. With Kafka it is asked once for each
            series that has no past, so that a first start has forecasts within minutes.
        without_kafka: Whether all series come from it, and nothing from Kafka; `--prometheus URL` sets both.
        matchers: Labels that its series must have, as PromQL writes them: `cluster="a",env=~"prod.*"`.
        delay_seconds: Age of the newest interval that is asked for; raise it for remote write that is late.
        bearer_token_file: File with a token.
        user: Name for basic authentication.
        password_file: File with its password.
        ca_file: Certificates that are trusted instead of the system's.
        cert_file: Own certificate.
        key_file: Its key.
        tenant: Value of the header `X-Scope-OrgID`, for Mimir and its like.
        proxy: Whether the environment's proxy is used.
        alertmanager_url: Alertmanager that findings are posted to, without Kafka; empty leaves alerts to Prometheus'
            rules.
        slowdown_temperatures: Slowdown temperature of GPUs whose exporter has none, by `modelName`, in degrees Celsius;
            these win over the table of the package.
    """

    url: Annotated[str, AfterValidator(_must_be_http), OptionName("--prometheus")] = ""
    without_kafka: bool = False
    matchers: str = ""
    delay_seconds: Annotated[float, Field(ge=0, le=3600)] = 5.0
    bearer_token_file: Path | None = None
    user: str = ""
    password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    tenant: str = ""
    proxy: bool = False
    alertmanager_url: Annotated[str, AfterValidator(_must_be_http), OptionName("--alertmanager")] = ""
    slowdown_temperatures: dict[str, Annotated[float, Field(gt=0, lt=200)]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _must_belong_together(self) -> "PrometheusSettings":
        if self.without_kafka and not self.url:
            raise ValueError("without_kafka needs url, the address of a Prometheus; give --prometheus http://HOST:PORT")
        if self.alertmanager_url and not self.without_kafka:
            raise ValueError(
                "alertmanager_url is for a predictor without Kafka; with Kafka, Prometheus' rules send the alerts; "
                "remove it"
            )
        if self.bearer_token_file is not None and self.user:
            raise ValueError("bearer_token_file and user exclude each other; remove one")
        if self.password_file is not None and not self.user:
            raise ValueError("password_file needs user; give both")
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("key_file needs cert_file; give both")
        return self

    @property
    def access(self) -> HttpAccess:
        """How requests are made."""
        return HttpAccess(
            bearer_token_file=self.bearer_token_file,
            user=self.user,
            password_file=self.password_file,
            ca_file=self.ca_file,
            cert_file=self.cert_file,
            key_file=self.key_file,
            tenant=self.tenant,
            with_proxy=self.proxy,
        )


class PredictorSettings(ServiceSettings):
    """Settings of `kernelcast predictor`.

    Attributes:
        group_id: Kafka's consumer group; predictors of one group share the partitions.
        client_id: Its name as a writer; two predictors must not have the same.
        interval_seconds: The grid observations are put on; at least the exporters' interval.
        window_points: Grid points kept per series.
        breach_seconds: A breach is a mean over this time at or beyond the limit; also the length of the blocks from
            which trends are estimated. Default: 300, less for a short window or near horizons.
        horizons_seconds: How far ahead; probabilities of breaches reach 288 blocks.
        limits: Thresholds and horizons of single series.
        time_zone: Of the site, such as `Europe/Berlin`: the hours that people keep when the clock changes.
        holidays: Days without the usual work, by this clock; they are no example for other days. Limits count on them.
        calendar: Maintenance: periods of which nothing is learnt or alarmed.
        publish: Series whose forecasts are published although nothing is wrong.
        sweep_every_seconds: How often cycles run.
        max_fits_per_sweep: Series forecast per cycle, those with the highest probability of a breach first.
        max_series: Series kept; further ones are refused and counted.
        expire_seconds: Time without a point after which a series is dropped; its past waits for its return while there
            is room.
        snapshot_every_seconds: How often windows are written to `kernelcast.state`.
        max_lag_messages: Messages per partition beyond which the predictor skips to its tail.
    """

    web: WebSettings = WebSettings(listen_address=":19402")
    group_id: str = Field(default="kernelcast-predictor", min_length=1)
    client_id: str = Field(default_factory=socket.gethostname, min_length=1)
    interval_seconds: Annotated[float, Field(ge=0.1), Remedy("raise it to the exporters' interval")] = 10.0
    window_points: Annotated[int, Field(ge=2 * BLOCKS, le=10_000)] = 240
    breach_seconds: Annotated[float, Field(gt=0)] | None = None
    horizons_seconds: Annotated[tuple[float, ...], AfterValidator(_must_ascend)] = HORIZONS_SECONDS
    limits: tuple[LimitSettings, ...] = ()
    time_zone: Annotated[str, AfterValidator(_must_be_a_zone)] = "UTC"
    holidays: tuple[date, ...] = ()
    calendar: tuple[CalendarSettings, ...] = ()
    publish: tuple[SeriesMatcher, ...] = ()
    sweep_every_seconds: Annotated[float, Field(ge=0.1)] = 30.0
    max_fits_per_sweep: Annotated[int, Field(ge=0)] = 500
    max_series: Annotated[int, Field(ge=1)] = 100_000
    expire_seconds: Annotated[float, Field(gt=0)] = 3600.0
    snapshot_every_seconds: Annotated[float, Field(ge=1)] = 60.0
    max_lag_messages: Annotated[int, Field(ge=1)] = 100_000
    judge: JudgeSettings = JudgeSettings()
    prometheus: PrometheusSettings = PrometheusSettings()
    alarms: AlarmSettings = AlarmSettings()
    hints: HintSettings = HintSettings()
    deep: DeepSettings = DeepSettings()

    @model_validator(mode="after")
    def _must_fit_the_window(self) -> "PredictorSettings":
        every = (self.horizons_seconds, *(limit.horizons_seconds for limit in self.limits if limit.horizons_seconds))
        nearest = min(horizons[0] for horizons in every)
        if nearest < self.interval_seconds:
            raise ValueError(
                f"the nearest of horizons_seconds is {nearest:g}; a forecast reaches at least one "
                f"interval_seconds, {self.interval_seconds:g}; raise the horizon"
            )
        span_seconds = self.window_points * self.interval_seconds
        if self.breach_seconds is not None and not self.interval_seconds <= self.breach_seconds <= span_seconds / 2:
            raise ValueError(
                f"breach_seconds is {self.breach_seconds:g}; it must be between interval_seconds, "
                f"{self.interval_seconds:g}, and half the window, {span_seconds / 2:g}; change it or widen the window"
            )
        return self

    @property
    def block_intervals(self) -> int:
        """Intervals in a block; a breach is a mean over a block."""
        seconds = self.breach_seconds
        if seconds is None:
            span_seconds = self.window_points * self.interval_seconds
            seconds = min(BREACH_SECONDS, self.horizons_seconds[-1] / REACH_BLOCKS, span_seconds / LEAST_BLOCKS)
        return max(round(seconds / self.interval_seconds), 1)

    @property
    def block_seconds(self) -> float:
        """Length of a block."""
        return self.block_intervals * self.interval_seconds

    @property
    def local_time(self) -> LocalTime:
        """Clock and holidays of the site."""
        return LocalTime(UTC if self.time_zone == "UTC" else ZoneInfo(self.time_zone), frozenset(self.holidays))

    @property
    def interval_ns(self) -> int:
        """The grid's step in nanoseconds."""
        return round(self.interval_seconds * NANOSECONDS_PER_SECOND)
