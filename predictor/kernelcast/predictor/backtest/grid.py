"""Puts the rows of each recorded series on a grid of equal intervals, and series with equal grids into batches.

The input is a `CsvTable`; `Backtest` computes columns of shape (series, intervals) per batch, which `spread` gives back
to the rows of the table.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.backtest.durations import Duration
from kernelcast.predictor.backtest.table import CsvTable, SeriesKey
from kernelcast.predictor.forecasting.panel import Panel
from kernelcast.predictor.series.attributes import DEVICE_METRICS, SeriesMatch
from kernelcast.predictor.series.calendar import overlaps
from kernelcast.predictor.settings import CalendarSettings
from kernelcast.wire.errors import ConfigurationError

DAY_SECONDS: Final = 86400.0
CYCLES: Final = (1, 7)
"""Candidate seasons in days: a day and a week; for a season that is given, itself and seven of it."""
MAX_INTERVALS: Final = 5_000_000
"""Longest grid of a series, 58 days of seconds: each column takes 8 bytes for each interval."""
SHORTEST_SECONDS: Final = 0.001
FREQUENT_RATIO: Final = 0.1
"""Share of the distances that the most frequent one has at least, where times are not jittered."""
TOLERANCE_RATIO: Final = 0.02
"""Difference from a multiple of the interval, in intervals, of times that are not jittered."""
REGULAR_RATIO: Final = 0.7
"""Share of such distances at least: a row may be late."""
NANOSECONDS: Final = 1e9
LARGEST_NS: Final = 9.2e18
"""Of an int64: in the year 2261. No calendar has a period before 1678 or after it."""


@dataclass(frozen=True, slots=True)
class GridOptions:
    """Options of the command that a grid depends on; None where they are inferred for each series.

    Attributes:
        interval: Length of an interval.
        season: Length of the shortest season.
        calendar: Periods, by which series they concern, that are neither learnt nor alarmed.
        metric: Prometheus name of all series; empty where it is not known.
    """

    interval: Duration | None = None
    season: Duration | None = None
    calendar: Sequence[CalendarSettings] = ()
    metric: str = ""


@dataclass(frozen=True, slots=True)
class GriddedSeries:
    """One series on its grid.

    Attributes:
        key: Its file and labels.
        rows: Numbers of its rows in the table, in input order.
        interval_of_row: int64, shape (rows,), number of the interval of each row.
        values: float64, shape (t,), NaN for gaps; of several rows in an interval the last one counts.
        start_seconds: Unix time of the first interval.
        interval_seconds: Length of an interval.
        seasons: Candidate lengths of seasons, intervals.
        excused: Shape (t,), whether the calendar excuses an interval; its value is a gap.
        node: Host of its GPU; empty where its labels name none.
    """

    key: SeriesKey
    rows: Sequence[int]
    interval_of_row: Ints
    values: Floats
    start_seconds: float
    interval_seconds: float
    seasons: tuple[int, ...]
    excused: Bools
    node: str = ""


@dataclass(frozen=True, slots=True)
class SeriesBatch:
    """Series of equal length, interval and seasons.

    Attributes:
        series: The series, by row of the panel.
        panel: Their values.
    """

    series: Sequence[GriddedSeries]
    panel: Panel

    @property
    def interval_seconds(self) -> float:
        """Length of an interval."""
        return self.series[0].interval_seconds

    @property
    def seasons(self) -> tuple[int, ...]:
        """Candidate lengths of seasons, intervals."""
        return self.series[0].seasons

    @property
    def excused(self) -> Bools:
        """Intervals that the calendar excuses, shape (n, t)."""
        return np.stack([one.excused for one in self.series])

    @property
    def nodes(self) -> Ints:
        """Number of each series' node and first interval, shape (n,); -1 without a node.

        Series that begin at different times have no columns in common, so they are not compared.
        """
        numbers: dict[tuple[str, float], int] = {}
        keys = [(series.node, series.start_seconds) for series in self.series]
        return np.array([numbers.setdefault(key, len(numbers)) if key[0] else -1 for key in keys], np.int64)

    def parts(self, rows: int) -> Iterator["SeriesBatch"]:
        """The batch in parts of about `rows` series, none of which divides a node."""
        order = np.argsort(self.nodes, kind="stable")
        nodes = self.nodes[order]
        next_node = np.flatnonzero((nodes[1:] != nodes[:-1]) | (nodes[1:] < 0)) + 1
        part: list[int] = []
        for node in np.split(order, next_node):
            if part and len(part) + len(node) > rows:
                yield self._part(part)
                part = []
            part.extend(node.tolist())
        yield self._part(part)

    def _part(self, rows: list[int]) -> "SeriesBatch":
        panel = replace(self.panel, values=self.panel.values[rows], season=self.panel.season[rows])
        return SeriesBatch([self.series[row] for row in rows], panel)


def batches(table: CsvTable, options: GridOptions) -> list[SeriesBatch]:
    """Put every series on its grid, and those with equal grids together.

    Raises:
        ConfigurationError: A grid would be too long.
    """
    groups: dict[tuple[float, int, tuple[int, ...]], list[GriddedSeries]] = {}
    for key, numbers in table.series().items():
        one = gridded(key, numbers, table, options)
        groups.setdefault((one.interval_seconds, len(one.values), one.seasons), []).append(one)
    return [_batch(group) for group in groups.values()]


def gridded(key: SeriesKey, numbers: Sequence[int], table: CsvTable, options: GridOptions) -> GriddedSeries:
    """Put one series on its grid.

    Args:
        key: Its file and labels.
        numbers: Numbers of its rows.
        table: All rows.
        options: Interval and season, where the user gave them.

    Raises:
        ConfigurationError: The grid would be too long.
    """
    rows = table.rows
    times = np.array([rows[number].seconds for number in numbers])
    values = np.array([rows[number].value for number in numbers])
    interval = inferred_interval(times) if options.interval is None else options.interval.seconds(1.0)
    interval_of_row = np.rint((times - times.min()) / interval).astype(np.int64)
    length = int(interval_of_row.max()) + 1
    if length > MAX_INTERVALS:
        name = ",".join(key[1]) or f"of file {key[0] + 1}"
        raise ConfigurationError(
            f"series {name} spans {length} intervals of {interval:g} s, the limit is {MAX_INTERVALS}; give a longer "
            "--interval"
        )
    grid = np.full(length, np.nan)
    has_value = ~np.isnan(values)
    grid[interval_of_row[has_value]] = values[has_value]
    begin_ns = np.clip((times.min() + np.arange(length) * interval) * NANOSECONDS, -LARGEST_NS, LARGEST_NS)
    excused = overlaps(_periods(key, table, options), begin_ns.astype(np.int64), 1)
    grid[excused] = np.nan
    seasons = _seasons(interval, options.season)
    node = _node(key, table, options)
    return GriddedSeries(key, numbers, interval_of_row, grid, float(times.min()), interval, seasons, excused, node)


def _node(key: SeriesKey, table: CsvTable, options: GridOptions) -> str:
    """Host of a series of a GPU's metric; empty for other metrics, and where no label names it."""
    if options.metric not in DEVICE_METRICS:
        return ""
    return dict(zip(table.labels, table.label_values(key), strict=True)).get("Hostname", "")


def _periods(key: SeriesKey, table: CsvTable, options: GridOptions) -> Sequence[CalendarSettings]:
    labels = dict(zip(table.labels, table.label_values(key), strict=True)) if options.calendar else {}
    return [one for one in options.calendar if SeriesMatch(one).fits(options.metric, lambda name: labels.get(name, ""))]


def inferred_interval(times: Floats) -> float:
    """Distance between neighbouring rows, seconds; 60 where there is none.

    It is the most frequent distance if most others are multiples of it, because rows are missing. Otherwise the times
    are jittered, and it is the mean distance; a gap counts as the number of intervals in it.

    Args:
        times: Unix times, in any order.

    Raises:
        ConfigurationError: Rows are less than a millisecond apart.
    """
    distances = np.diff(np.unique(times))
    if not len(distances):
        return 60.0
    distinct, counts = np.unique(np.round(distances, 3), return_counts=True)
    frequent, count = float(distinct[np.argmax(counts)]), int(counts.max())
    if frequent > 0 and count >= max(FREQUENT_RATIO * len(distances), min(2, len(distances))):
        multiples = distances / frequent
        if np.mean(np.abs(multiples - np.rint(multiples)) <= TOLERANCE_RATIO) >= REGULAR_RATIO:
            return frequent
    median = float(np.sort(distances)[(len(distances) - 1) // 2])
    interval = float(distances.sum() / np.rint(distances / median).sum())
    if interval < SHORTEST_SECONDS:
        raise ConfigurationError(f"rows are {interval:g} s apart, less than a millisecond; give --interval")
    return interval


def _seasons(interval_seconds: float, season: Duration | None) -> tuple[int, ...]:
    if season is not None:
        shortest = season.intervals(interval_seconds)
        return tuple(shortest * cycles for cycles in CYCLES) if shortest > 1 else ()
    lengths = (round(DAY_SECONDS * cycles / interval_seconds) for cycles in CYCLES)
    return tuple(length for length in lengths if length > 1)


def _batch(group: Sequence[GriddedSeries]) -> SeriesBatch:
    first = group[0]
    end_seconds = first.start_seconds + len(first.values) * first.interval_seconds
    season = np.full(len(group), first.seasons[0] if first.seasons else 0)
    values = np.stack([one.values for one in group])
    panel = Panel(values, int(end_seconds * NANOSECONDS), int(first.interval_seconds * NANOSECONDS), season)
    return SeriesBatch(group, panel)


def spread(batch: SeriesBatch, columns: Mapping[str, Floats]) -> dict[int, dict[str, float]]:
    """Return the columns of each row, by its number.

    Args:
        batch: The series.
        columns: float64, shape (n, t), by name.
    """
    cells: dict[int, dict[str, float]] = {}
    for index, one in enumerate(batch.series):
        picked = {name: values[index, one.interval_of_row].tolist() for name, values in columns.items()}
        for place, number in enumerate(one.rows):
            cells[number] = {name: column[place] for name, column in picked.items()}
    return cells
