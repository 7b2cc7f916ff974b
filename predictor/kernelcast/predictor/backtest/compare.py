"""Alerts of one recording under two configurations: gained, lost, earlier or later (`--compare OLD.yaml NEW.yaml`).

An alert is an episode of a series in which the alert rule fires. Episodes of both configurations that overlap are the
same alert; if it begins at another time, it comes earlier or later.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools
from kernelcast.predictor.backtest.breaches import BreachOptions, breach_columns
from kernelcast.predictor.backtest.grid import GriddedSeries, SeriesBatch
from kernelcast.predictor.backtest.output import csv_file, time_text
from kernelcast.predictor.backtest.table import CsvTable, SeriesKey

COLUMNS: Final = ("change", "old_begin", "old_end", "new_begin", "new_end", "shift_seconds")


class AlertChange(StrEnum):
    """Difference of one alert between two configurations."""

    GAINED = "gained"
    LOST = "lost"
    EARLIER = "earlier"
    LATER = "later"
    SAME = "same"


@dataclass(frozen=True, slots=True)
class Episode:
    """Intervals from `begin` up to, not including, `end` in which an alert fires; Unix seconds.

    Attributes:
        begin: Begin.
        end: End; that of the recording where the alert still fires.
    """

    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class ChangedAlert:
    """One alert under both configurations.

    Attributes:
        key: The series.
        change: The difference.
        old: Episode under the old configuration; None if it is gained.
        new: Episode under the new configuration; None if it is lost.
    """

    key: SeriesKey
    change: AlertChange
    old: Episode | None
    new: Episode | None

    @property
    def begin(self) -> float:
        """The first moment at which either configuration alerts."""
        return min(episode.begin for episode in (self.old, self.new) if episode is not None)


def alert_changes(batches: Iterable[SeriesBatch], old: BreachOptions, new: BreachOptions) -> list[ChangedAlert]:
    """All alerts of both configurations, unchanged ones included, by time within each series."""
    changed: list[ChangedAlert] = []
    for batch in batches:
        before, after = (breach_columns(batch, each)["alert"] == 1 for each in (old, new))
        for row, series in enumerate(batch.series):
            changed += matched(series.key, _episodes(series, before[row]), _episodes(series, after[row]))
    return changed


def _episodes(series: GriddedSeries, alert: Bools) -> list[Episode]:
    """Episodes of one series, whose alert has shape (t,)."""
    edges = np.flatnonzero(np.diff(np.r_[False, alert, False].astype(np.int8)))
    times = series.start_seconds + edges * series.interval_seconds
    return [Episode(begin, end) for begin, end in times.reshape(-1, 2).tolist()]


def matched(key: SeriesKey, old: Sequence[Episode], new: Sequence[Episode]) -> list[ChangedAlert]:
    """Pair overlapping episodes: an alert of one configuration may be several of the other one."""
    marked = sorted(
        [(episode, True) for episode in old] + [(episode, False) for episode in new], key=lambda each: each[0].begin
    )
    groups: list[tuple[float, list[Episode], list[Episode]]] = []
    for episode, is_old in marked:
        if not groups or episode.begin >= groups[-1][0]:
            groups.append((episode.end, [], []))
        end, before, after = groups[-1]
        (before if is_old else after).append(episode)
        groups[-1] = (max(end, episode.end), before, after)
    return [_changed(key, _joined(before), _joined(after)) for _, before, after in groups]


def _joined(episodes: Sequence[Episode]) -> Episode | None:
    return Episode(episodes[0].begin, episodes[-1].end) if episodes else None


def _changed(key: SeriesKey, old: Episode | None, new: Episode | None) -> ChangedAlert:
    if old is None or new is None:
        return ChangedAlert(key, AlertChange.GAINED if old is None else AlertChange.LOST, old, new)
    shift = new.begin - old.begin
    change = AlertChange.EARLIER if shift < 0 else AlertChange.LATER if shift > 0 else AlertChange.SAME
    return ChangedAlert(key, change, old, new)


def write_changes(path: Path, table: CsvTable, changes: Sequence[ChangedAlert]) -> None:
    """Write one row for each alert that differs: labels, change, begin and end under both configurations.

    Raises:
        ConfigurationError: It cannot be written.
    """
    spellings = table.time_spellings()
    with csv_file(path) as writer:
        writer.writerow([*table.labels, *COLUMNS])
        for change in changes:
            if change.change != AlertChange.SAME:
                writer.writerow([*table.label_values(change.key), *_cells(change, spellings[change.key[0]])])


def _cells(change: ChangedAlert, like: str) -> list[str]:
    old, new = change.old, change.new
    times = [time_text(moment, like) for episode in (old, new) if episode for moment in (episode.begin, episode.end)]
    if old is None or new is None:
        return [change.change, *(["", "", *times] if old is None else [*times, "", ""]), ""]
    return [change.change, *times, f"{new.begin - old.begin:g}"]


def change_lines(table: CsvTable, changes: Sequence[ChangedAlert]) -> list[str]:
    """The comparison as text: one line for each alert that differs, by time, then the number of each kind."""
    labels = {change.key: _labels(table, change.key) for change in changes}
    spellings = table.time_spellings()
    shown = [
        " ".join(part for part in (change.change, labels[change.key], _times(change, spellings[change.key[0]])) if part)
        for change in sorted(changes, key=lambda each: each.begin)
        if change.change != AlertChange.SAME
    ]
    counts = Counter(change.change for change in changes)
    return [*shown, ", ".join(f"{counts[kind]} {kind}" for kind in AlertChange)]


def _times(change: ChangedAlert, like: str) -> str:
    old, new = change.old, change.new
    if old is not None and new is not None:
        shift = abs(new.begin - old.begin)
        return f"by {shift:g} s: {time_text(old.begin, like)} is now {time_text(new.begin, like)}"
    episode = old or new
    assert episode is not None  # noqa: S101  an alert has at least one episode
    return f"{time_text(episode.begin, like)} until {time_text(episode.end, like)}"


def _labels(table: CsvTable, key: SeriesKey) -> str:
    pairs = zip(table.labels, table.label_values(key), strict=True)
    return "{" + ",".join(f'{name}="{value}"' for name, value in pairs if value) + "}"
