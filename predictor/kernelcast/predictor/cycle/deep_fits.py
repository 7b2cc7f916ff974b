"""Fitted models of live series: which windows are fitted, and from which block on their models are used.

`Forecasts` asks for the models of the rows that it forecasts. Everything follows from event time: a window ends at an
*origin* of its schedule. It is requested from the pool of workers at the end of a block, and its models are used from
the end of the next block on, however fast a worker is. An answer that has not arrived by then is not used, and counted.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.forecasting.deep.messages import MODELS, FitOutcome, FitRequest
from kernelcast.predictor.forecasting.deep.models import LinearModel
from kernelcast.predictor.forecasting.deep.panel import FittedPanel, fit_window
from kernelcast.predictor.forecasting.deep.pool import Answered, Pool, Shed
from kernelcast.predictor.forecasting.deep.schedule import DELAY, FitSchedule

MAX_SERIES: Final = 10_000
"""Rows whose models are kept; the ones that were forecast longest ago are forgotten first.

Of more rows in one block, the first ones have models.
"""
_BLOCKS_OF_BUDGET: Final = 4
"""Blocks whose requests are counted against the budget, those that came last: hosts may be at different blocks."""
Key = tuple[str, int]
"""Name of a schedule, and an origin."""


@dataclass(slots=True)
class _Series:
    """Fits of one row.

    Attributes:
        generation: Of the row.
        block: The newest one at whose end it was forecast.
        round: That of this forecast, see `DeepFits._series_of`.
        fits: Models by schedule and origin; none where a window could not be fitted.
        requested: Ticket and block of each request under way.
        used: Whether its newest forecast uses a model.
    """

    generation: int
    block: int = 0
    round: int = 0
    fits: dict[Key, tuple[LinearModel, ...]] = field(default_factory=dict)
    requested: dict[Key, tuple[int, int]] = field(default_factory=dict)
    used: bool = False


class DeepFits:
    """Fits of the rows that are forecast. Only the thread that runs cycles uses it; the pool has threads of its own.

    Attributes:
        outcomes: Fits so far, by model and outcome.
        shed: Windows that were not fitted, or whose models came too late, by reason.
        seconds: Processor time of the fits.
    """

    def __init__(self, pool: Pool, fits_per_block: int) -> None:
        """Begin without fits.

        Args:
            pool: Fits windows.
            fits_per_block: Most windows that are requested for each block.
        """
        self._pool = pool
        self._budget = fits_per_block
        self._series: dict[int, _Series] = {}
        self._spent: dict[int, int] = {}
        self._tickets = count()
        self._open: set[int] = set()
        self._answered: dict[int, Answered] = {}
        self._round = 0
        self.outcomes: Counter[tuple[str, FitOutcome]] = Counter()
        self.shed: Counter[Shed] = Counter()
        self.seconds = 0.0

    @property
    def series(self) -> int:
        """Rows with a model among those that were just forecast."""
        return sum(any(each.fits.values()) for each in self._current())

    @property
    def used_series(self) -> int:
        """Those of them whose forecast uses a model, at any lead."""
        return sum(each.used for each in self._current())

    @property
    def starts(self) -> int:
        """Worker processes started so far."""
        return self._pool.starts

    def panel(
        self, rows: Ints, generations: Ints, values: Floats, schedule: FitSchedule, at: tuple[int, int]
    ) -> FittedPanel:
        """Models of some rows, as they are used at the end of a block; requests those that are due.

        Args:
            rows: Shape (n,), in order of importance.
            generations: Shape (n,), of the rows.
            values: Shape (n, t), NaN for gaps.
            schedule: Of the fits.
            at: The block, and the number of the last interval of the values.
        """
        block, last = at
        self._collect()
        numbers = zip(rows[:MAX_SERIES].tolist(), generations[:MAX_SERIES].tolist(), strict=True)
        chosen = [self._series_of(row, generation, block) for row, generation in numbers]
        for series in chosen:
            self._settle(series, block)
        for place, series in enumerate(chosen):
            for origin in self._due(series, values[place], schedule, last):
                if not self._affordable(block):
                    break
                window = fit_window(schedule.cut(values[place], origin, last))
                self._request(series, schedule, origin, block, window)
        fits = [
            {origin: models for (name, origin), models in series.fits.items() if name == schedule.name and models}
            for series in chosen
        ]
        without: list[dict[int, tuple[LinearModel, ...]]] = [{} for _ in range(len(rows) - len(chosen))]
        return FittedPanel(values, last, fits + without, schedule)

    def note_use(self, rows: Ints, panel: FittedPanel) -> None:
        """Remember for which rows the forecasts made with a panel use a model."""
        for row, used in zip(rows[:MAX_SERIES].tolist(), panel.used[:MAX_SERIES].tolist(), strict=True):
            self._series[row].used = used

    def _current(self) -> Iterator[_Series]:
        return (each for each in self._series.values() if each.round >= self._round - DELAY)

    def _series_of(self, row: int, generation: int, block: int) -> _Series:
        """Fits of a row that is forecast at the end of a block.

        A round ends when a series of it is forecast again. Blocks do not tell which rows were just forecast: the clock
        of a host may be ahead, or have been set back.
        """
        series = self._series.pop(row, None)
        if series is not None and series.generation != generation:
            self._forget(series)
            series = None
        series = series or _Series(generation)
        if series.block not in (0, block) and series.round == self._round:
            self._round += 1
        series.block, series.round = block, self._round
        self._series[row] = series
        while len(self._series) > MAX_SERIES:
            self._forget(self._series.pop(next(iter(self._series))))
        return series

    def _forget(self, series: _Series) -> None:
        for ticket, _ in series.requested.values():
            self._close(ticket)

    def _close(self, ticket: int) -> Answered | None:
        """End a request; returns its answer, if there is one."""
        self._open.discard(ticket)
        return self._answered.pop(ticket, None)

    def _collect(self) -> None:
        for answered in self._pool.answers():
            if answered.ticket in self._open:
                self._answered[answered.ticket] = answered
            self.seconds += answered.answer.seconds
            self.outcomes.update(answered.answer.outcomes.items())
            if answered.reason is not None:
                self.shed[answered.reason] += 1

    def _settle(self, series: _Series, block: int) -> None:
        """Take the answers to requests of earlier blocks, and give up those that are missing."""
        for key, (ticket, requested) in list(series.requested.items()):
            if block < requested + DELAY:
                continue
            del series.requested[key]
            answered = self._close(ticket)
            if answered is None:
                self.shed[Shed.LATE] += 1
            else:
                # A window on which a process hung or ended is not tried again.
                series.fits[key] = answered.answer.models

    def _due(self, series: _Series, values: Floats, schedule: FitSchedule, last: int) -> Iterator[int]:
        """Origins without a fit, the newest first; forgets the oldest fits."""
        known = np.isfinite(values)
        if not known.any():
            return
        first = last - len(values) + 1 + int(np.argmax(known))
        oldest = last - len(values)
        for key in [key for key in series.fits if key[0] == schedule.name and key[1] < oldest]:
            del series.fits[key]
        for origin in reversed(schedule.origins(first, last)[-schedule.kept :]):
            key = (schedule.name, origin)
            if key not in series.fits and key not in series.requested:
                yield origin

    def _affordable(self, block: int) -> bool:
        if self._spent.get(block, 0) < self._budget:
            return True
        self.shed[Shed.OVER_BUDGET] += 1
        return False

    def _request(self, series: _Series, schedule: FitSchedule, origin: int, block: int, window: Floats) -> None:
        self._spent[block] = self._spent.get(block, 0) + 1
        while len(self._spent) > _BLOCKS_OF_BUDGET:
            del self._spent[next(iter(self._spent))]
        ticket = next(self._tickets)
        if self._pool.submit(ticket, FitRequest(window, origin, schedule.season)):
            self._open.add(ticket)
            series.requested[schedule.name, origin] = (ticket, block)
        else:
            self.shed[Shed.QUEUE_FULL] += 1


def every_outcome() -> Iterator[tuple[str, FitOutcome]]:
    """Yield all pairs of a model and an outcome."""
    for model in MODELS:
        for outcome in FitOutcome:
            yield model, outcome
