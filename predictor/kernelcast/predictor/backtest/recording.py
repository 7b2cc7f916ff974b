"""Reads the input of a backtest from a Prometheus: a range query becomes the same table as files give."""

import math
from dataclasses import dataclass
from typing import Final

from kernelcast.predictor.backtest.durations import parse_duration
from kernelcast.predictor.backtest.output import time_text
from kernelcast.predictor.backtest.table import TIME, VALUE, CsvRow, CsvTable, SeriesKey, unix_seconds
from kernelcast.predictor.prometheus import Labels, PrometheusClient, RangeSeries, TimeRange
from kernelcast.wire.errors import ConfigurationError

DEFAULT_STEP: Final = "60s"


@dataclass(frozen=True, slots=True)
class RangeOptions:
    """Options of the command that select a range of a Prometheus, as the user wrote them.

    Attributes:
        url: Address; None for no Prometheus.
        query: PromQL expression.
        start: First moment.
        end: Last moment.
        step: Distance of the moments.
    """

    url: str | None = None
    query: str | None = None
    start: str | None = None
    end: str | None = None
    step: str | None = None

    @property
    def given(self) -> list[str]:
        """Names of the options that the user gave."""
        named = {"prometheus": self.url, "query": self.query, "start": self.start, "end": self.end, "step": self.step}
        return [f"--{name}" for name, value in named.items() if value is not None]

    @property
    def step_seconds(self) -> float:
        """Distance of the moments, seconds.

        Raises:
            ConfigurationError: It is no duration.
        """
        duration = parse_duration("--step", self.step or DEFAULT_STEP)
        if duration.counted:
            raise ConfigurationError(f"--step is {self.step!r}; write it with a unit, such as 60s or 5m")
        return duration.amount


def read_range(options: RangeOptions, *, now_seconds: float) -> CsvTable:
    """Read a range; times are written as `--start` is.

    Args:
        options: Of the command.
        now_seconds: End of the range where the user gave none.

    Raises:
        ConfigurationError: An option is missing or wrong, or the query has no values in the range.
        PrometheusError: Prometheus is unreachable or refused the query.
    """
    if options.url is None or options.query is None or options.start is None:
        missing = [name for name in ("--prometheus", "--query", "--start") if name not in options.given]
        raise ConfigurationError(f"{options.given[0]} needs {' and '.join(missing)} beside it")
    start = _moment("--start", options.start)
    end = now_seconds if options.end is None else _moment("--end", options.end)
    series = PrometheusClient(options.url).query_range(options.query, TimeRange(start, end, options.step_seconds))
    if not series:
        raise ConfigurationError(
            f"--query {options.query} has no values between {options.start} and {time_text(end, options.start)}; "
            "check the metric's name and the time"
        )
    return _table(series, like=options.start)


def _moment(option: str, text: str) -> float:
    try:
        return unix_seconds(text)
    except ValueError:
        raise ConfigurationError(
            f"{option} is {text!r}; write YYYY-MM-DD HH:MM:SS (UTC), RFC 3339 or Unix seconds"
        ) from None


def _table(series: list[RangeSeries], *, like: str) -> CsvTable:
    names = tuple(sorted({name for one in series for name, _ in one.labels}))
    for name in (TIME, VALUE):
        if name in names:
            raise ConfigurationError(
                f"--query gives series with the label {name}, which is a column of the output; rename it with "
                f'label_replace(QUERY, "{name}_label", "$1", "{name}", "(.*)") and remove it with `without ({name})`'
            )
    table = CsvTable(labels=list(names), columns=[names])
    for one in series:
        key = _key(one.labels, names)
        for seconds, value in zip(one.seconds.tolist(), one.values.tolist(), strict=True):
            table.infinite += math.isinf(value)
            table.rows.append(CsvRow(time_text(seconds, like), seconds, _finite(value), _text(value)))
            table.keys.append(key)
    return table


def _key(labels: Labels, names: tuple[str, ...]) -> SeriesKey:
    own = dict(labels)
    return 0, tuple(own.get(name, "") for name in names)


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.nan


def _text(value: float) -> str:
    """A value as Prometheus writes it, NaN and infinite ones as a gap."""
    if not math.isfinite(value):
        return ""
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
