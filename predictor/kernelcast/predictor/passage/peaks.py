"""Rise of the highest hour from day to day: a drift slower than a day is seen from peak to peak, not within one.

Yesterday's drift belongs to the usual range of today, so `season` explains it. Peaks of two days in a row that are
each above all days before are no rhythm: the first workday of a first week is such a record, the second one is not.

`detector` carries the smaller of both rises on for a day, and takes the sooner of this passage and that within the day.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats

_RISES: Final = 2
"""Rises in a row, each to a record."""
_OVERLAP_SHARE: Final = 0.25
"""Share of a day by which earlier days reach into the next: a morning that the end of a day cuts is no rise of two."""


@dataclass(frozen=True, slots=True, eq=False)
class Peaks:
    """Shape (n,).

    Attributes:
        level: Highest hour of the last day; NaN where three days are not known.
        rise: The smaller of the last two rises, a day; 0 where one of them is none.
    """

    level: Floats
    rise: Floats

    @property
    def rising(self) -> Bools:
        """Series whose last peaks are records."""
        found: Bools = self.rise > 0
        return found


def daily_peaks(hours: Floats, day_hours: int) -> Peaks:
    """Compare the peaks of the days that end now.

    Args:
        hours: Shape (n, h), so directed that a rise is bad, the last one is the last whole hour; NaN where unknown.
        day_hours: Hours of a day, at least 1.
    """
    rows, length = hours.shape
    days = max(length // day_hours, _RISES + 1)
    overlap = int(_OVERLAP_SHARE * day_hours)
    padded = np.full((rows, days * day_hours + overlap), -np.inf)
    kept = min(length, days * day_hours)
    known = hours[:, length - kept :]
    padded[:, days * day_hours - kept : days * day_hours] = np.where(np.isfinite(known), known, -np.inf)
    starts = [day * day_hours for day in range(days)]
    peaks = np.stack([padded[:, at : at + day_hours].max(axis=1) for at in starts], axis=1)
    wide = np.stack([padded[:, at : at + day_hours + overlap].max(axis=1) for at in starts], axis=1)
    highest = np.maximum.accumulate(wide, axis=1)
    seen = np.isfinite(peaks[:, -_RISES - 1 :]).all(axis=1)
    rises = np.where(seen[:, None], peaks[:, -_RISES:], 0.0) - np.where(
        seen[:, None], highest[:, -_RISES - 1 : -1], 0.0
    )
    return Peaks(np.where(seen, peaks[:, -1], np.nan), np.maximum(rises.min(axis=1), 0.0))
