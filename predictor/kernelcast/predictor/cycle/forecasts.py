"""Forecasts of the series that are published, at their horizons: from blocks, and from hours for distant horizons."""

# `Publication` asks for the rows that are due, once per block; the arithmetic is in `predictor.forecasting`.

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.cycle.deep_fits import DeepFits
from kernelcast.predictor.cycle.predictions import Bounds
from kernelcast.predictor.forecasting.deep.panel import FittedPanel
from kernelcast.predictor.forecasting.deep.schedule import BLOCKS
from kernelcast.predictor.forecasting.error_quantiles import MIN_ERRORS
from kernelcast.predictor.forecasting.panel import Panel
from kernelcast.predictor.forecasting.path import forecast_leads
from kernelcast.predictor.forecasting.spikes import without_spikes
from kernelcast.predictor.scoring.intervals import LEVELS, surprise_of
from kernelcast.predictor.series.histories import Histories

HOURS_FROM_BLOCKS: Final = 96
"""Leads beyond this number of blocks are forecast from hours, where there are enough."""
DAY_HOURS: Final = 24
"""Season of the hours, used from three days of history on."""
MAX_KEPT: Final = 100_000
"""Rows whose newest forecast is kept; the one made longest ago is dropped first."""


@dataclass(frozen=True, slots=True)
class SeriesForecast:
    """Forecast of one series.

    Attributes:
        generation: Of its row.
        block: Number of the newest block that it rests on.
        bounds: By horizon in seconds.
        next_block: Bounds of the block after it.
        expected: Bounds of this block, made one block earlier; None without one.
        quantiles: By horizon in seconds, shape (levels,), at `LEVELS`.
        surprise: By horizon in seconds, of the newest block by the forecast that was made of it; NaN where none was.
        last: Mean of the newest block.
    """

    generation: int
    block: int
    bounds: Mapping[float, Bounds]
    next_block: Bounds | None
    expected: Bounds | None
    quantiles: Mapping[float, Floats]
    surprise: Mapping[float, float]
    last: float


class Forecasts:
    """The newest forecast of each published row. Only the thread that runs cycles makes them."""

    def __init__(self, histories: Histories, block_seconds: float, deep: DeepFits | None = None) -> None:
        """Begin without forecasts.

        Args:
            histories: Blocks and hours.
            block_seconds: Length of a block.
            deep: Fitted models; None for the fast methods alone.
        """
        self._histories = histories
        self._deep = deep
        self._block_seconds = block_seconds
        self._kept: dict[int, SeriesForecast] = {}

    def get(self, row: int, generation: int) -> SeriesForecast | None:
        """The newest forecast of a row; None without one."""
        found = self._kept.get(row)
        return found if found is not None and found.generation == generation else None

    def due(self, rows: Ints, generations: Ints, blocks: Ints) -> Ints:
        """Places of the rows whose forecast does not rest on their newest block."""
        places = enumerate(zip(rows.tolist(), generations.tolist(), blocks.tolist(), strict=True))
        return np.array(
            [place for place, (row, generation, block) in places if self._is_due(row, generation, block)], np.int64
        )

    def make(self, rows: Ints, generations: Ints, block: int, horizons_seconds: tuple[float, ...]) -> None:
        """Forecast rows from the end of their newest block, the same for all; the most important rows first."""
        bounds, off = self._bounds(rows, generations, block, horizons_seconds)
        last = self._histories.blocks(rows, block)[0][:, -1]
        for place, (row, generation) in enumerate(zip(rows.tolist(), generations.tolist(), strict=True)):
            before = self.get(row, generation)
            own = {
                horizon: found for horizon, values in bounds.items() if (found := _finite(values[place])) is not None
            }
            expected = before.next_block if before is not None and before.block == block - 1 else None
            kept = {horizon: own[horizon] for horizon in horizons_seconds if horizon in own}
            nearest = own.get(self._block_seconds)
            self._kept.pop(row, None)
            quantiles = {horizon: _around_median(bounds[horizon][place]) for horizon in kept}
            surprise = {horizon: float(off[horizon][place]) for horizon in kept}
            self._kept[row] = SeriesForecast(
                generation, block, kept, nearest, expected, quantiles, surprise, float(last[place])
            )
        while len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]

    def _is_due(self, row: int, generation: int, block: int) -> bool:
        found = self.get(row, generation)
        return found is None or found.block != block

    def _bounds(
        self, rows: Ints, generations: Ints, block: int, horizons_seconds: tuple[float, ...]
    ) -> tuple[dict[float, Floats], dict[float, Floats]]:
        """Median and quantiles by horizon, each of shape (n, 1 + levels), and surprises, each of shape (n,)."""
        values = _since_first(self._histories.blocks(rows, block)[0])
        wanted = {horizon: max(round(horizon / self._block_seconds), 1) for horizon in horizons_seconds}
        wanted[self._block_seconds] = 1
        distant = {horizon: lead for horizon, lead in wanted.items() if lead > HOURS_FROM_BLOCKS}
        near = {horizon: lead for horizon, lead in wanted.items() if horizon not in distant}
        found: dict[float, Floats] = {}
        off = {horizon: np.full(len(rows), np.nan) for horizon in wanted}
        if distant:
            hours = _since_first(self._histories.hours(rows, block))
            width = self._histories.hour_blocks
            leads = {horizon: max(round(lead / width), 1) for horizon, lead in distant.items()}
            enough = max(leads.values()) + 2 * MIN_ERRORS <= hours.shape[1]
            season = (DAY_HOURS,) if hours.shape[1] >= 3 * DAY_HOURS else ()
            found = self._forecast(hours, leads, season, off) if enough else {}
            near |= {} if enough else distant
        if self._deep is None:
            return found | self._forecast(values, near, (), off), off
        models = self._deep.panel(rows, generations, values, BLOCKS, (block, block))
        found |= self._forecast(values, near, (), off, models)
        self._deep.note_use(rows, models)
        return found, off

    def _forecast(
        self,
        values: Floats,
        leads: Mapping[float, int],
        seasons: tuple[int, ...],
        off: dict[float, Floats],
        models: FittedPanel | None = None,
    ) -> dict[float, Floats]:
        """Bounds by horizon; beyond the leads of which a series knows errors, those of a nearer lead grow with time.

        The surprises of the leads that are known are added to `off`.
        """
        if values.shape[1] <= 2 * MIN_ERRORS:
            return {}
        nearer = max((values.shape[1] - 2 * MIN_ERRORS) // 2, 1)
        panel = Panel(without_spikes(values), 0, 1, np.zeros(len(values), np.int64))
        possible = {lead for lead in leads.values() if lead + MIN_ERRORS < values.shape[1]}
        distinct = sorted({*possible, nearer})
        center, quantiles, due = forecast_leads(panel, distinct, LEVELS, seasons, models)
        bounds = np.stack([center, *quantiles], axis=2)
        known = bounds[:, distinct.index(nearer)]
        found: dict[float, Floats] = {}
        for horizon, lead in leads.items():
            grown = _grown(known, lead / nearer)
            own = bounds[:, distinct.index(lead)] if lead in possible else grown
            if lead in possible:
                off[horizon] = surprise_of(panel.values[:, -1], due[:, :, distinct.index(lead)].T)
            complete: Bools = np.isfinite(own.sum(axis=1))
            found[horizon] = np.where(complete[:, None], own, grown)
        return found


def _grown(bounds: Floats, ratio: float) -> Floats:
    """Bounds of a lead that is longer by a ratio: the errors grow with the lead, as those of a slope do."""
    if ratio < 1.0:
        return np.full_like(bounds, np.nan)
    center = bounds[:, :1]
    limits = np.maximum(center + ratio * (bounds[:, 1:] - center), np.where(bounds[:, 1:] >= 0, 0.0, -np.inf))
    return np.column_stack([center, limits])


def _since_first(values: Floats) -> Floats:
    """The panel without the columns before the first value of its oldest series."""
    known = np.isfinite(values).any(axis=0)
    first = int(np.argmax(known)) if known.any() else values.shape[1] - 1
    return values[:, first:]


def _finite(values: Floats) -> Bounds | None:
    if not np.isfinite(values).all():
        return None
    mean, lower, upper = (float(value) for value in values[[0, 1, -1]])
    # Past errors all on one side leave the median outside of their quantiles.
    return mean, min(lower, mean), max(upper, mean)


def _around_median(values: Floats) -> Floats:
    """Quantiles, with the forecast itself as their median."""
    return np.where(np.array(LEVELS) == 0.5, values[0], values[1:])
