"""A site's clock and holidays (`predictor.time_zone`, `predictor.holidays`): what earlier hours say about today.

When the clock of a site changes, its people come an hour sooner or later in UTC: hours before the change move with
them. Hours of a holiday say nothing about other days.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from functools import lru_cache
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints

_HOUR_SECONDS: Final = 3600
_DAY_HOURS: Final = 24
_EPOCH: Final = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True)
class LocalTime:
    """Clock and holidays of a site.

    Attributes:
        zone: Its time zone.
        holidays: Its days without the usual work, by its own clock.
    """

    zone: tzinfo = UTC
    holidays: frozenset[date] = frozenset()

    def usual_hours(self, hours: Floats, last: Ints) -> Floats:
        """Hours at the place that they have on today's clock, without those of holidays.

        Args:
            hours: Shape (n, h), one an hour, oldest first.
            last: Shape (n,), number of the last column's hour since the epoch.

        Returns:
            Shape (n, h); NaN for holidays and for an hour that a clock left out. Of an hour that came twice the later
            one counts.
        """
        if self.zone is UTC and not self.holidays:
            return hours
        usual = np.full(hours.shape, np.nan)
        for number in np.unique(last).tolist():
            mine = np.flatnonzero(last == number)
            from_columns, to_columns = _moves(self.zone, self.holidays, number, hours.shape[1])
            usual[np.ix_(mine, to_columns)] = hours[np.ix_(mine, from_columns)]
        return usual


@lru_cache(maxsize=64)
def _moves(zone: tzinfo, holidays: frozenset[date], last: int, count: int) -> tuple[Ints, Ints]:
    """Columns that say something, and those where they belong, each once."""
    columns = np.arange(count)
    numbers = last - count + 1 + columns
    offsets = np.array([_offset_seconds(zone, number) for number in numbers.tolist()], dtype=np.int64)
    to = columns + np.rint((offsets - offsets[-1:]) / _HOUR_SECONDS).astype(np.int64)
    days = (numbers * _HOUR_SECONDS + offsets) // (_DAY_HOURS * _HOUR_SECONDS)
    off = np.isin(days, [day.toordinal() - _EPOCH for day in holidays])
    later = np.ones(count, np.bool_)
    later[:-1] = to[1:] != to[:-1]
    kept = ~off & later & (to >= 0) & (to < count)
    return columns[kept], to[kept]


def _offset_seconds(zone: tzinfo, hour: int) -> int:
    offset = datetime.fromtimestamp(hour * _HOUR_SECONDS, zone).utcoffset()
    return 0 if offset is None else round(offset.total_seconds())
