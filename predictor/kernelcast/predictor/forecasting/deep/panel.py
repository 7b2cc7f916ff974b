"""Fitted models applied to a panel: forecasts from every interval, each with the fit that was in use then."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.forecasting.deep.models import LinearModel
from kernelcast.predictor.forecasting.deep.schedule import DELAY, OLDEST_USED, FitSchedule
from kernelcast.predictor.forecasting.rolling import forward_filled, rolling_median
from kernelcast.predictor.robust import MAD_TO_SIGMA

LEVEL_INTERVALS: Final = 12
"""Newest values whose median is the level."""
SPREAD_INTERVALS: Final = 96
"""Newest distances from the level whose median is the spread."""
MOST_SPREADS: Final = 3.0
"""Distance from the level, in spreads, to which a value is clipped."""
Fits: TypeAlias = Mapping[int, Sequence[LinearModel]]
"""Models of one series by origin."""


def winsorised(values: Floats) -> Floats:
    """Values with bursts cut off: models with Gaussian errors follow bursts, which medians do not.

    At every interval the value is clipped to the median of the last 12 values, plus or minus three robust standard
    deviations from it.

    Args:
        values: Shape (n, t), without gaps.
    """
    level = rolling_median(values, LEVEL_INTERVALS)
    spread = MOST_SPREADS * MAD_TO_SIGMA * rolling_median(np.abs(values - level), SPREAD_INTERVALS)
    return np.clip(values, level - spread, level + spread)


def fit_window(values: Floats) -> Floats:
    """A window as it is fitted, shape (t,): winsorised by its own values alone, gaps as they are."""
    return np.where(np.isnan(values), np.nan, winsorised(forward_filled(values[None]))[0])


@dataclass(frozen=True, slots=True)
class _Segment:
    """Part of a series for which one fit is in use, from column `begin`; `number` is that of its interval."""

    row: int
    model: LinearModel
    begin: int
    number: int
    states: Floats


class FittedPanel:
    """Forecasts of some series by their fitted models; made for one call of `path` or `combination`.

    Attributes:
        rows: Number of series.
        used: Shape (n,), filled by the forecasts made with it: whether any lead's newest one uses a model.
    """

    def __init__(self, values: Floats, last: int, fits: Sequence[Fits], schedule: FitSchedule) -> None:
        """Keep the series, which are filtered when they are forecast.

        Args:
            values: Shape (n, t), NaN for gaps.
            last: Number of the last interval.
            fits: Of each series.
            schedule: Of the fits.
        """
        self.rows, self._length = values.shape
        self.used = np.zeros(self.rows, np.bool_)
        self._values, self._last, self._fits, self._schedule = values, last, fits, schedule
        self._first = last - self._length + 1

    def part(self, rows: Ints, length: int) -> "FittedPanel":
        """The panel of some series, with their newest intervals alone.

        Args:
            rows: Shape (m,), of this panel.
            length: Number of intervals.
        """
        fits = [self._fits[row] for row in rows.tolist()]
        return FittedPanel(self._values[rows, self._length - length :], self._last, fits, self._schedule)

    @property
    def names(self) -> list[str]:
        """Names of the models that any series has."""
        return list(dict.fromkeys(segment.model.name for segment in self._segments))

    @cached_property
    def _segments(self) -> list[_Segment]:
        fitted = np.array([row for row, each in enumerate(self._fits) if each], np.int64)
        series = winsorised(forward_filled(self._values[fitted]))
        return [
            segment
            for place, row in enumerate(fitted.tolist())
            for segment in self._cut(row, series[place], self._fits[row])
        ]

    def forecasts(self, lead: int, rows: slice) -> dict[str, Floats]:
        """Forecasts by name of the model, each of shape (rows, t), NaN where no fit is in use."""
        begin, end, _ = rows.indices(self.rows)
        by_model = {name: np.full((end - begin, self._length), np.nan) for name in self.names}
        for segment in self._segments:
            if begin <= segment.row < end:
                columns = slice(segment.begin, segment.begin + len(segment.states))
                values = segment.model.forecasts(segment.states, segment.number, lead)
                by_model[segment.model.name][segment.row - begin, columns] = values
        return by_model

    def _cut(self, row: int, values: Floats, fits: Fits) -> Iterator[_Segment]:
        ends: dict[str, int] = {}
        for origin in sorted(fits, reverse=True):
            for model in fits[origin]:
                end = min(origin + OLDEST_USED * self._schedule.every, self._first + self._length)
                end = min(end, ends.get(model.name, end))
                begin = origin + DELAY
                if origin + 1 >= self._first and begin < end:
                    ends[model.name] = begin
                    states = model.states(values[origin + 1 - self._first : end - self._first], origin + 1)
                    yield _Segment(row, model, begin - self._first, begin, states[DELAY - 1 :])
