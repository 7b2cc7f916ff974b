"""Usual range of each series by hour of day, from the hours of up to five weeks before.

A rise that leads to where the series was at this hour of other days is no drift. The range is that of most days, an
hour wider on both sides: people begin early or late, and a change to summer time moves them by an hour, unless a time
zone is set (`local_time`). A rhythm of a week is known after a week: the hours a week and two weeks ago belong to it.

`detector` takes the range from values before it estimates trends; the usual path ahead tells which limit a drift will
reach at the next peak.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.passage.series import DAY_BLOCKS, HOUR_BLOCKS, history_length
from kernelcast.predictor.robust import row_medians

_MOST_DAYS: Final = 0.75
"""Share of the days whose value lies below the upper end of the range, so that a fault of the last days is no habit."""
_WEEKS: Final = (1, 2)
"""Weeks before of which the same hour belongs to the range."""
_INSIDE_SHARE: Final = 0.25
"""Share of the range that a block must keep from both ends to say nothing about a drift."""
_INSIDE_NOISE: Final = 3.0
"""The same in standard deviations of a block."""

_AGREEING_BLOCKS: Final = 47
"""Blocks over which days must agree before a rise within the range of the whole day counts: four hours."""
_AGREEING_DAYS: Final = 3
"""Days that must agree."""


class Rhythm(StrEnum):
    """What the past of a series shows of its season."""

    UNKNOWN = "unknown"
    DAY = "day"
    WEEK = "week"


def rhythm(hours: Floats, day_hours: int) -> list[Rhythm]:
    """Season of each series: of a day after one day, of a week after eight.

    Args:
        hours: Shape (n, h), as for `learn`.
        day_hours: Hours of a day; 0 where they do not divide it.
    """
    length, week = history_length(np.isfinite(hours)), _shows_week(hours, day_hours)
    return [
        Rhythm.UNKNOWN if not day_hours or long <= day_hours else Rhythm.WEEK if weekly else Rhythm.DAY
        for long, weekly in zip(length.tolist(), week.tolist(), strict=True)
    ]


@dataclass(frozen=True, slots=True, eq=False)
class Season:
    """Usual values, so directed that a rise is bad; d hours of a day.

    Attributes:
        upper: Shape (n, d), upper end of the range in the last d hours, the present one last; NaN where no earlier day
            has a value.
        lower: Shape (n, d), lower end.
        path: Shape (n, d), upper value of most days, of that hour alone.
        coming: Shape (n, d), the same for the next d hours: where no earlier day has a value, that of the last day.
        sure: Shape (n, d), value that most days reach, of that hour alone.
        phase: Shape (n,), blocks since the end of the last whole hour.
        days: Shape (n,), earlier days with a value.
        week: Shape (n,), whether the same day of another week is known.
    """

    upper: Floats
    lower: Floats
    path: Floats
    coming: Floats
    sure: Floats
    phase: Ints
    days: Ints
    week: Bools

    @property
    def known(self) -> Bools:
        """Whether an earlier day shows the present hour, shape (n,)."""
        return self.known_before(np.zeros(len(self.phase), np.int64))

    def known_before(self, blocks: Ints) -> Bools:
        """Whether an earlier day shows the hour that lies some blocks back, shape (n,); within a day."""
        columns = self._columns(-np.minimum(blocks, DAY_BLOCKS - 1)[:, None])
        known: Bools = np.isfinite(np.take_along_axis(self.path, columns, axis=1)[:, 0])
        return known

    def usual(self, values: Floats, noise: Floats) -> Floats:
        """What the season explains of each block, shape (n, b); 0 where it is unknown, NaN for blocks within the range.

        A block between both ends says nothing about a drift, as the time of day when work begins differs.

        Args:
            values: Shape (n, b), blocks.
            noise: Shape (n,), standard deviation of a block.
        """
        columns = self._columns(np.arange(1 - values.shape[1], 1))
        lower, upper, path = (np.take_along_axis(each, columns, axis=1) for each in (self.lower, self.upper, self.path))
        seen = np.isfinite(path) & self.known[:, None]
        margin = np.maximum(_INSIDE_SHARE * (upper - lower), _INSIDE_NOISE * noise[:, None])
        inside = seen & (values < upper - margin) & (values > lower + margin)
        explained = np.clip(values, lower, upper)
        # Before the first block that an earlier day shows, the season explains as much as in that hour.
        counted = seen & np.isfinite(values)
        first = counted & (np.cumsum(counted, axis=1) <= HOUR_BLOCKS)
        begin = np.where(first.any(axis=1), np.nan_to_num(row_medians(np.where(first, explained, np.nan))), 0.0)
        usual: Floats = np.where(inside, np.nan, np.where(seen, explained, begin[:, None]))
        return usual

    def is_narrow(self) -> Bools:
        """Whether several earlier days agree about the last hours, shape (n,), as nights do, and jobs do not."""
        columns = self._columns(np.arange(-_AGREEING_BLOCKS, 1))
        width = np.take_along_axis(self.upper, columns, axis=1) - np.take_along_axis(self.lower, columns, axis=1)
        whole = np.nan_to_num(self.upper, nan=-np.inf).max(axis=1) - np.nan_to_num(self.lower, nan=np.inf).min(axis=1)
        narrow: Bools = (width.max(axis=1) < _INSIDE_SHARE * whole) & (self.days >= _AGREEING_DAYS) & self.known
        return narrow

    def upper_now(self) -> Floats:
        """Upper end of the range now, shape (n,); NaN where it is not known."""
        return self._now(self.upper)

    def lower_now(self) -> Floats:
        """Lower end of the range now, shape (n,); NaN where it is not known."""
        return self._now(self.lower)

    def _now(self, ends: Floats) -> Floats:
        columns = self._columns(np.zeros(1, np.int64))
        now: Floats = np.where(self.known, np.take_along_axis(ends, columns, axis=1)[:, 0], np.nan)
        return now

    def ahead(self, blocks: Floats, sure: Bools) -> Floats:
        """Highest usual value from now until each of some blocks ahead, shape (n, k); -inf where unknown.

        Args:
            blocks: Shape (k,).
            sure: Shape (n,), whether a value counts only where most days reach it.
        """
        steps = np.arange(1, int(blocks.max()) + 1)
        path = np.take_along_axis(np.where(sure[:, None], self.sure, self.coming), self._columns(steps), axis=1)
        highest = np.maximum.accumulate(np.where(self.known[:, None] & np.isfinite(path), path, -np.inf), axis=1)
        return highest[:, blocks.astype(np.int64) - 1]

    def _columns(self, steps: Floats | Ints) -> Ints:
        """Columns of blocks that lie some steps from the newest one, shape (n, k)."""
        hour = (self.phase[:, None] - 1 + steps) // HOUR_BLOCKS
        columns: Ints = (hour - 1).astype(np.int64) % self.upper.shape[1]
        return columns


def learn(hours: Floats, phase: Ints, day_hours: int) -> Season:
    """Learn the range.

    Args:
        hours: Shape (n, h), the last one is the last whole hour; NaN where it is not known, or a fault.
        phase: Shape (n,), blocks since its end.
        day_hours: Hours of a day, at least 1.
    """
    rows, length = hours.shape
    days = max(-(-length // day_hours), 1)
    # The present day is the last `day_hours` columns, of which the very last is the hour that has not ended.
    padded = np.full((rows, (days + 1) * day_hours + 1), np.nan)
    padded[:, padded.shape[1] - 1 - length : -1] = hours
    around = np.concatenate([np.full((rows, 1), np.nan), padded, np.full((rows, 1), np.nan)], axis=1)
    high = np.fmax(np.fmax(around[:, :-2], around[:, 1:-1]), around[:, 2:])[:, 1:]
    low = np.fmin(np.fmin(around[:, :-2], around[:, 1:-1]), around[:, 2:])[:, 1:]
    upper = _of_most_days(high, day_hours)
    for week in _WEEKS:
        back = (7 * week + 1) * day_hours
        if back <= high.shape[1]:
            upper = np.fmax(upper, high[:, high.shape[1] - back : high.shape[1] - back + day_hours])
    lower = -_of_most_days(-low, day_hours)
    path, sure = _of_most_days(padded[:, 1:], day_hours), -_of_most_days(-padded[:, 1:], day_hours)
    coming = np.where(np.isfinite(path), path, padded[:, -day_hours:])
    earlier = padded[:, 1:-day_hours].reshape(rows, -1, day_hours)
    known_days = np.isfinite(earlier).any(axis=2).sum(axis=1)
    return Season(upper, lower, path, coming, sure, phase, known_days, _shows_week(hours, day_hours))


def _shows_week(hours: Floats, day_hours: int) -> Bools:
    week: Bools = history_length(np.isfinite(hours)) >= (_WEEKS[0] * 7 + 1) * day_hours
    return week


def _of_most_days(values: Floats, day_hours: int) -> Floats:
    """Value that most earlier days do not exceed, by hour of the last day; shape (n, day_hours)."""
    earlier = values[:, :-day_hours]
    ordered = np.sort(np.moveaxis(earlier.reshape(len(values), -1, day_hours), 1, 2), axis=2)
    count = np.isfinite(ordered).sum(axis=2)
    place = np.ceil(_MOST_DAYS * np.maximum(count - 1, 0)).astype(np.int64)
    most: Floats = np.take_along_axis(ordered, place[:, :, None], axis=2)[:, :, 0]
    return most
