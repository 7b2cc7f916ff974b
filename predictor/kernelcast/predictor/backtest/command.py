"""`kernelcast backtest FILE... --output FILE`."""

import math
import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from kernelcast.predictor.backtest.breaches import DEFAULT_HORIZON, BreachOptions
from kernelcast.predictor.backtest.companions import Companions
from kernelcast.predictor.backtest.compare import COLUMNS, alert_changes, change_lines, write_changes
from kernelcast.predictor.backtest.configuration import configured, ignored_differences, read_settings
from kernelcast.predictor.backtest.durations import Duration, parse_duration
from kernelcast.predictor.backtest.engine import ROWS_AT_ONCE, Backtest, column_names
from kernelcast.predictor.backtest.grid import GridOptions, batches
from kernelcast.predictor.backtest.output import check_output, write
from kernelcast.predictor.backtest.recording import RangeOptions, read_range
from kernelcast.predictor.backtest.run import BacktestOptions
from kernelcast.predictor.backtest.table import CsvTable, read
from kernelcast.predictor.forecasting.deep.pool import pooled_fits
from kernelcast.predictor.local_time import LocalTime
from kernelcast.runtime.command import command
from kernelcast.wire.catalogue import own_name
from kernelcast.wire.catalogue.meanings import MEANINGS, OTHER, Meaning
from kernelcast.wire.errors import ConfigurationError

Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FILE...", help="CSV: timestamp, value and any label columns.", exists=True, dir_okay=False),
]
PrometheusUrl = Annotated[
    str | None,
    typer.Option("--prometheus", metavar="URL", help="Read a range of this Prometheus instead of files."),
]
Query = Annotated[str | None, typer.Option("--query", metavar="EXPR", help="PromQL expression of the range.")]
Start = Annotated[
    str | None, typer.Option("--start", metavar="TIME", help="First time of the range, such as 2026-11-01T00:00:00Z.")
]
End = Annotated[str | None, typer.Option("--end", metavar="TIME", help="Last time of the range; default: now.")]
Step = Annotated[str | None, typer.Option("--step", metavar="TIME", help="Distance of the range's times: 60s.")]
Output = Annotated[Path, typer.Option("--output", metavar="FILE", help="Where to write; replaced as a whole.")]
Ahead = Annotated[
    str, typer.Option("--ahead", metavar="TIME", help="How long before its row a forecast is made: 5m, or 3 intervals.")
]
Horizon = Annotated[
    str | None, typer.Option("--horizon", metavar="TIME", help="Forecast this far after the last row of each series.")
]
IntervalOption = Annotated[
    str | None, typer.Option("--interval", metavar="TIME", help="Distance of the rows; default: inferred by series.")
]
Season = Annotated[
    str | None, typer.Option("--season", metavar="TIME", help="Length of the season; default: a day and a week.")
]
Quantiles = Annotated[
    str, typer.Option("--quantiles", metavar="LIST", help="Further quantiles as columns, such as 0.1,0.9.")
]
Threshold = Annotated[
    float | None, typer.Option("--threshold", metavar="NUMBER", help="The limit; default: that of --metric, if any.")
]
Below = Annotated[bool, typer.Option("--below", help="Values at or below the threshold are a breach.")]
For = Annotated[str, typer.Option("--for", metavar="TIME", help="Length of the mean that has to reach the threshold.")]
MetricOption = Annotated[
    str | None,
    typer.Option("--metric", metavar="NAME", help="Prometheus name of the metric: gives direction, limit and cause."),
]
CompanionsFile = Annotated[
    Path | None,
    typer.Option(
        "--companions",
        metavar="FILE",
        help="CSV: timestamp, metric, value and labels. Power explains temperatures; slowdown temperatures limit them.",
        exists=True,
        dir_okay=False,
    ),
]
CalendarFile = Annotated[
    Path | None,
    typer.Option(
        "--calendar",
        metavar="FILE",
        help="Settings file: its time_zone and holidays apply; its calendar is neither learnt nor alarmed.",
        exists=True,
        dir_okay=False,
    ),
]
Report = Annotated[bool, typer.Option("--report", help="Print scores, with naive forecasts beside them.")]

Deep = Annotated[
    bool,
    typer.Option("--deep", help="Fit models of statsmodels, too; used where they win. 70 ms for each 48 rows."),
]
Compare = Annotated[
    tuple[Path, Path] | None,
    typer.Option(
        "--compare",
        metavar="OLD.yaml NEW.yaml",
        help="Settings files: write the alerts of --metric that the new one gains, loses or moves.",
    ),
]


@command
def backtest(  # noqa: PLR0913  typer makes an option of each
    files: Files = None,
    *,
    output: Output,
    prometheus: PrometheusUrl = None,
    query: Query = None,
    start: Start = None,
    end: End = None,
    step: Step = None,
    ahead: Ahead = "1",
    horizon: Horizon = None,
    interval: IntervalOption = None,
    season: Season = None,
    quantiles: Quantiles = "",
    threshold: Threshold = None,
    below: Below = False,
    lasting: For = "5m",
    metric: MetricOption = None,
    companions: CompanionsFile = None,
    calendar: CalendarFile = None,
    report: Report = False,
    deep: Deep = False,
    compare: Compare = None,
) -> None:
    """Judge each row of recorded series from the rows before it, as the predictor does with live ones."""
    recording = RangeOptions(prometheus, query, start, end, step)
    metric = own_name(metric) if metric else metric
    grid = GridOptions(_duration("--interval", interval or _step(recording)), _duration("--season", season))
    if grid.interval is not None and grid.interval.counted:
        raise ConfigurationError(f"--interval is {interval!r}; write it with a unit, such as 60s or 5m")
    local_time = LocalTime()
    if calendar is not None:
        site = read_settings(calendar, option="--calendar")
        grid, local_time = replace(grid, calendar=site.calendar, metric=metric or ""), site.local_time
    options = BacktestOptions(parse_duration("--ahead", ahead), _duration("--horizon", horizon), _levels(quantiles))
    meaning = _meaning(metric) if compare is None else MEANINGS.get(metric or "", OTHER)
    if threshold is not None and not math.isfinite(threshold):
        raise ConfigurationError(f"--threshold is {threshold:g}; write a number in the unit of the values")
    table = _read(files or [], recording)
    if table.infinite:
        message = f"{table.infinite} of {len(table.rows)} values are infinite: they count as missing, and as no breach"
        typer.echo(message, err=True)
    read_files = [path for path in (*(files or ()), companions, calendar, *(compare or ())) if path is not None]
    check_output(output, read_files, table, column_names(options) if compare is None else COLUMNS)
    breaches = BreachOptions(
        threshold,
        below or meaning.below,
        parse_duration("--for", lasting),
        options.horizon or DEFAULT_HORIZON,
        meaning,
        Companions.of_file(table, companions),
        local_time=local_time,
    )
    if compare is not None:
        used = {
            "--report": report,
            "--horizon": horizon,
            "--quantiles": quantiles,
            "--threshold": threshold is not None,
            "--deep": deep,
            "--ahead": ahead != "1",
        }
        _refuse_beside_compare(name for name, value in used.items() if value)
        _compare(compare, table, grid, breaches, metric, output)
        return
    with pooled_fits(len(os.sched_getaffinity(0))) if deep else nullcontext() as fit_all:
        options = replace(options, fit_all=fit_all)
        run = Backtest(table, grid, options, scored=report, breaches=breaches, progress=_progress)
        results, futures = run.results()
    write(output, table, column_names(options), results, futures)
    for line in run.scores.lines() if report else ():
        typer.echo(line)


def _refuse_beside_compare(names: Iterable[str]) -> None:
    for name in names:
        raise ConfigurationError(
            f"{name} has no meaning beside --compare, which writes alerts; limits come from the two settings files "
            "(predictor.judge.thresholds)"
        )


def _compare(
    paths: tuple[Path, Path],
    table: CsvTable,
    grid: GridOptions,
    breaches: BreachOptions,
    metric: str | None,
    output: Path,
) -> None:
    """Write and print the alerts that differ between two configurations.

    Raises:
        ConfigurationError: A file is wrong, or one of the configurations has no limit for the metric.
    """
    if metric is None:
        raise ConfigurationError("--compare needs --metric NAME: limits are settings of a metric")
    old, new = settings = [read_settings(path) for path in paths]
    options = [configured(breaches, each, metric) for each in settings]
    parts = [part for batch in batches(table, grid) for part in batch.parts(ROWS_AT_ONCE)]
    for path, each in zip(paths, options, strict=True):
        if not any(each.has_limit(part) for part in parts):
            raise ConfigurationError(
                f"--compare {path} gives {metric} no limit; write predictor.judge.thresholds.{metric} into it"
            )
    changes = alert_changes(parts, *options)
    write_changes(output, table, changes)
    for line in change_lines(table, changes):
        typer.echo(line)
    for setting in ignored_differences(old, new):
        typer.echo(f"predictor.{setting} differs; a backtest does not apply it", err=True)


def _read(files: Sequence[Path], recording: RangeOptions) -> CsvTable:
    """The input: files, or a range of a Prometheus.

    Raises:
        ConfigurationError: Both or neither are given, or one cannot be read.
        PrometheusError: Prometheus is unreachable or refused the query.
    """
    if files and recording.given:
        raise ConfigurationError(f"{files[0]} and {recording.given[0]} are both given; choose files or a Prometheus")
    if not files and not recording.given:
        raise ConfigurationError("there is no input; give files, or --prometheus URL --query EXPR --start TIME")
    return read(files) if files else read_range(recording, now_seconds=time.time())


def _step(recording: RangeOptions) -> str | None:
    """The interval of a range: its step, also where most of its values are absent."""
    return f"{recording.step_seconds:g}s" if recording.given else None


def _meaning(metric: str | None) -> Meaning:
    """The judgement of a metric.

    Raises:
        ConfigurationError: The catalogue does not say how to judge it.
    """
    if metric is None:
        return OTHER
    if metric not in MEANINGS:
        raise ConfigurationError(f"--metric is {metric!r}; known ones are {', '.join(MEANINGS)}")
    return MEANINGS[metric]


def _duration(option: str, text: str | None) -> Duration | None:
    return None if text is None else parse_duration(option, text)


def _levels(text: str) -> tuple[float, ...]:
    """The quantile levels of an option.

    Raises:
        ConfigurationError: One lies outside 0..1, or is no number.
    """
    try:
        levels = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        levels = (-1.0,)
    if any(not 0 < level < 1 for level in levels):
        raise ConfigurationError(f"--quantiles is {text!r}; write numbers between 0 and 1, such as 0.1,0.9")
    return tuple(dict.fromkeys(levels))


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{done} of {total} series" + ("\n" if done == total else ""))
        sys.stderr.flush()
