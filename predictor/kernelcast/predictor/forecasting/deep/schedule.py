"""Times of fits: the intervals after which a series is fitted (origins), and the windows that a fit sees.

Origins follow from event time alone, so that a restart or another predictor fits the same windows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kernelcast.predictor.arrays import Floats

DELAY: Final = 1
"""Intervals from a fit's origin to the first forecast that uses it, and blocks from its request to its use."""
OLDEST_USED: Final = 3
"""A fit is used until the next one, for at most this multiple of the distance between fits."""
LEAST_SEASONS: Final = 4
"""Seasons that a window must hold before the season is taken out of it."""


@dataclass(frozen=True, slots=True)
class FitSchedule:
    """Origins of the fits of a series.

    Attributes:
        name: Of the resolution.
        every: Intervals between origins, which are the multiples of it.
        window: Most intervals that a fit sees.
        least: Intervals of history before the first origin.
        season: Intervals of the season that is taken out of the values; 0 for none.
        kept: Newest origins of a live series that are fitted; a series that is new has several at once, so that past
            forecasts exist with which it is compared.
    """

    name: str
    every: int
    window: int
    least: int
    season: int
    kept: int

    def origins(self, first: int, last: int) -> range:
        """Numbers of the intervals after which a series is fitted, ascending.

        Args:
            first: Number of the first interval with a value.
            last: Number of the newest interval.
        """
        begin = -(-(first + self.least - 1) // self.every) * self.every
        return range(begin, last + 1, self.every)

    def cut(self, values: Floats, origin: int, last: int) -> Floats:
        """The window of a fit.

        Args:
            values: Shape (t,), up to the interval `last`.
            origin: Number of the last interval that the fit sees.
            last: See `values`.
        """
        end = len(values) - (last - origin)
        return values[max(0, end - self.window) : end]


BLOCKS: Final = FitSchedule("blocks", every=48, window=288, least=48, season=0, kept=6)
"""Blocks of five minutes: fits every four hours, from a day."""
SEASONAL_WINDOW: Final = 504
"""Three weeks of hours."""


def schedule_of(seasons: Sequence[int]) -> FitSchedule:
    """Return the schedule of a recording: with its shortest season if a window holds four of them."""
    season = min((each for each in seasons if each > 1), default=0)
    if not season or LEAST_SEASONS * season > SEASONAL_WINDOW:
        return BLOCKS
    return FitSchedule("seasonal", season, SEASONAL_WINDOW, LEAST_SEASONS * season, season, BLOCKS.kept)
