"""Baselines of series whose limit is a multiple of their own usual value.

The first minutes of a process are left out: compilation, autotuning and cold clocks are not its usual speed. Then the
baseline is learnt from the lower cluster of a regime's blocks: it follows while nothing is wrong, and stays while the
series is slow. Another version, or a process of unknown version, begins a regime. A series that gets slower from day to
day, for longer than its blocks reach back, keeps the level of the day before it began to, which its hours show.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.passage.series import SeriesBlocks
from kernelcast.predictor.robust import row_medians, row_quantiles

OPENING_BLOCKS: Final = 3
"""First blocks of a process that are left out: 15 minutes."""
LEAST_BLOCKS: Final = 3
"""Blocks that a baseline needs."""
CLUSTER_RATIO: Final = 1.1
"""Blocks up to this multiple of the tenth percentile form the lower cluster."""
_LOW_SHARE: Final = 0.1
"""That percentile."""
_LEAST_CREEP_DAYS: Final = 2
"""Least number of days of a creep, one after another, each slower than the day before."""
_CREEP_RATIO: Final = 0.01
"""Least share by which each of these days is slower than the day before."""


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """Usual values, shape (n,).

    Attributes:
        value: The baseline; NaN until it is learnt.
        opening: Whether the process is in its first minutes.
        openings: Shape (n, b), blocks within the first minutes of a process.
        since: First block of the regime.
    """

    value: Floats
    opening: Bools
    openings: Bools
    since: Ints

    def rows(self, chosen: Bools) -> "Baseline":
        """Some of the series."""
        return Baseline(self.value[chosen], self.opening[chosen], self.openings[chosen], self.since[chosen])


def learn_some(blocks: SeriesBlocks, which: Bools, *, below: Bools, day_hours: int) -> Baseline:
    """Learn the usual values of some of the series; the others have none, no first minutes, and one regime.

    Args:
        blocks: The series.
        which: Shape (n,).
        below: Shape (n,), whether lower is worse.
        day_hours: Hours of a day; 0 where they do not divide it.
    """
    rows, length = blocks.median.shape
    found = learn(blocks.rows(which), below=below[which], day_hours=day_hours)
    value, opening = np.full(rows, np.nan), np.zeros(rows, dtype=np.bool_)
    openings, since = np.zeros((rows, length), dtype=np.bool_), np.zeros(rows, dtype=np.int64)
    value[which], opening[which], openings[which], since[which] = (
        found.value,
        found.opening,
        found.openings,
        found.since,
    )
    return Baseline(value, opening, openings, since)


def learn(blocks: SeriesBlocks, *, below: Bools, day_hours: int) -> Baseline:
    """Learn the usual value of the present regime of each series.

    Args:
        blocks: The series.
        below: Shape (n,), whether lower is worse: then the upper cluster is the usual one.
        day_hours: Hours of a day; 0 where they do not divide it.
    """
    length = blocks.median.shape[1]
    places = np.arange(length)
    since = regime_start(blocks)
    begins = _begins(blocks.process)
    age = places - np.maximum.accumulate(np.where(begins, places, 0), axis=1)
    usable = (places >= since[:, None]) & (age >= OPENING_BLOCKS) & np.isfinite(blocks.median)
    sign = np.where(below, -1.0, 1.0)[:, None]
    level = _lower_cluster(sign * np.where(usable, blocks.median, np.nan))
    before = np.where(since == 0, before_creep(sign * blocks.hours, day_hours), np.nan)
    value = np.abs(np.fmin(level, before))
    value[usable.sum(axis=1) < LEAST_BLOCKS] = np.nan
    return Baseline(value, length - last_true(begins) < OPENING_BLOCKS, age < OPENING_BLOCKS, since)


def before_creep(hours: Floats, day_hours: int) -> Floats:
    """Usual value of the day before a series began to rise from day to day; NaN where it does not.

    Args:
        hours: Shape (n, h), higher is worse, the newest last.
        day_hours: Hours of a day; 0 where they do not divide it: then no creep is known.

    Returns:
        Shape (n,).
    """
    days = hours.shape[1] // day_hours if day_hours else 0
    if days <= _LEAST_CREEP_DAYS:
        return np.full(len(hours), np.nan)
    recent = hours[:, hours.shape[1] - days * day_hours :]
    levels = _lower_cluster(recent.reshape(-1, day_hours)).reshape(len(hours), days)
    rises = np.diff(levels, axis=1) >= _CREEP_RATIO * np.abs(levels[:, :-1])
    length = days - 1 - last_true(np.concatenate([np.ones((len(hours), 1), np.bool_), ~rises], axis=1))
    before: Floats = levels[np.arange(len(hours)), days - 1 - length]
    return np.where(length >= _LEAST_CREEP_DAYS, before, np.nan)


def _lower_cluster(values: Floats) -> Floats:
    """Median of the lower cluster of each row; NaN where it has no value."""
    low = row_quantiles(values, _LOW_SHARE)
    return row_medians(np.where(values <= (low + (CLUSTER_RATIO - 1.0) * np.abs(low))[:, None], values, np.nan))


def regime_start(blocks: SeriesBlocks) -> Ints:
    """First block of the present regime: since the last change of version, or of a process without a known version."""
    change = np.zeros(blocks.process.shape, dtype=np.bool_)
    known = blocks.version >= 0
    change[:, 1:] = np.where(
        known[:, 1:] & known[:, :-1],
        blocks.version[:, 1:] != blocks.version[:, :-1],
        blocks.process[:, 1:] != blocks.process[:, :-1],
    )
    return last_true(change)


def _begins(process: Ints) -> Bools:
    begins = np.zeros(process.shape, dtype=np.bool_)
    begins[:, 1:] = process[:, 1:] != process[:, :-1]
    return begins


def last_true(change: Bools) -> Ints:
    """Place of the last true value of each row; 0 where there is none."""
    length = change.shape[1]
    last: Ints = np.where(change.any(axis=1), length - 1 - np.argmax(change[:, ::-1], axis=1), 0).astype(np.int64)
    return last
