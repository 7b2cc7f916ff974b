"""Forecasts of the series that are published, at their horizons: from blocks, and from hours for distant horizons.

`Publication` asks for the rows that are due, once per block; the arithmetic is in `predictor.forecasting`.
"""

from collections.abc import Iterator, Mapping
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
from kernelcast.predictor.passage.series import history_length
from kernelcast.predictor.scoring.intervals import LEVELS, surprise_of
from kernelcast.predictor.series.histories import Histories

HOURS_FROM_BLOCKS: Final = 96
"""Leads beyond this number of blocks are forecast from hours, where there are enough."""
DAY_HOURS: Final = 24
"""Season of the hours, used from three days of history on."""
_SHORTEST: Final[Ints] = np.unique((2 * MIN_ERRORS + 1) * 1.1 ** np.arange(60) // 1).astype(np.int64)
"""Least length of the series of each part of a batch: more parts cost more time, fewer make their panels longer."""
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
        forecast = self._kept.get(row)
        return forecast if forecast is not None and forecast.generation == generation else None

    def due(self, rows: Ints, generations: Ints, blocks: Ints) -> Ints:
        """Places of the rows whose forecast does not rest on their newest block."""
        places = enumerate(zip(rows.tolist(), generations.tolist(), blocks.tolist(), strict=True))
        return np.array(
            [place for place, (row, generation, block) in places if self._is_due(row, generation, block)], np.int64
        )

    def make(self, rows: Ints, generations: Ints, block: int, horizons_seconds: tuple[float, ...]) -> None:
        """Forecast rows from the end of their newest block, the same for all; the most important rows first."""
        values = self._histories.blocks(rows, block)[0]
        bounds, surprises = self._bounds(values, rows, generations, block, horizons_seconds)
        for place, (row, generation) in enumerate(zip(rows.tolist(), generations.tolist(), strict=True)):
            before = self.get(row, generation)
            own = {
                horizon: finite for horizon, values in bounds.items() if (finite := _finite(values[place])) is not None
            }
            expected = before.next_block if before is not None and before.block == block - 1 else None
            kept = {horizon: own[horizon] for horizon in horizons_seconds if horizon in own}
            nearest = own.get(self._block_seconds)
            self._kept.pop(row, None)
            quantiles = {horizon: _around_median(bounds[horizon][place]) for horizon in kept}
            surprise = {horizon: float(surprises[horizon][place]) for horizon in kept}
            self._kept[row] = SeriesForecast(
                generation, block, kept, nearest, expected, quantiles, surprise, float(values[place, -1])
            )
        while len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]

    def _is_due(self, row: int, generation: int, block: int) -> bool:
        forecast = self.get(row, generation)
        return forecast is None or forecast.block != block

    def _bounds(
        self, values: Floats, rows: Ints, generations: Ints, block: int, horizons_seconds: tuple[float, ...]
    ) -> tuple[dict[float, Floats], dict[float, Floats]]:
        """Median and quantiles by horizon, each of shape (n, 1 + levels), and surprises, each of shape (n,)."""
        wanted = {horizon: max(round(horizon / self._block_seconds), 1) for horizon in horizons_seconds}
        wanted[self._block_seconds] = 1
        distant = {horizon: lead for horizon, lead in wanted.items() if lead > HOURS_FROM_BLOCKS}
        bounds = {horizon: np.full((len(rows), 1 + len(LEVELS)), np.nan) for horizon in wanted}
        surprises = {horizon: np.full(len(rows), np.nan) for horizon in wanted}
        from_hours = np.zeros(len(rows), np.bool_)
        if distant:
            hours, width = self._histories.hours(rows, block), self._histories.hour_blocks
            leads = {horizon: max(round(lead / width), 1) for horizon, lead in distant.items()}
            from_hours = history_length(np.isfinite(hours)) >= max(leads.values()) + 2 * MIN_ERRORS
            for part in _parts(hours, from_hours):
                _forecast(part, leads, bounds, surprises, seasonal=part.shortest >= 3 * DAY_HOURS)
        models = self._deep.panel(rows, generations, values, BLOCKS, (block, block)) if self._deep is not None else None
        near = {horizon: lead for horizon, lead in wanted.items() if horizon not in distant}
        for chosen, leads in ((from_hours, near), (~from_hours, wanted)):
            for part in _parts(values, chosen):
                _forecast(part, leads, bounds, surprises, models)
        if self._deep is not None and models is not None:
            self._deep.note_use(rows, models)
        return bounds, surprises


@dataclass(frozen=True, slots=True)
class _Part:
    """Series of about one length, so that a forecast does not depend on the series beside it.

    Attributes:
        places: Shape (n,), in the batch.
        shortest: Least length of a series of this part, whether or not this batch has one.
        values: Shape (n, t), with the first value of the longest series that this part may have.
    """

    places: Ints
    shortest: int
    values: Floats


def _parts(values: Floats, chosen: Bools) -> Iterator[_Part]:
    """Divide the chosen series by their length, from the first value; those that are too short are left out."""
    width, lengths = values.shape[1], history_length(np.isfinite(values))
    bounds = np.append(_SHORTEST[width > _SHORTEST], [width, width + 1])
    numbers = np.where(chosen & (lengths > 2 * MIN_ERRORS), np.searchsorted(bounds, lengths, side="right"), 0)
    for number in np.unique(numbers[numbers > 0]).tolist():
        places = np.flatnonzero(numbers == number)
        shortest, longest = int(bounds[number - 1]), int(bounds[number]) - 1
        yield _Part(places, shortest, values[places, width - longest :])


def _forecast(
    part: _Part,
    leads: Mapping[float, int],
    bounds: Mapping[float, Floats],
    surprises: Mapping[float, Floats],
    models: FittedPanel | None = None,
    *,
    seasonal: bool = False,
) -> None:
    """Fill in bounds and surprises by horizon; beyond the leads of known errors, bounds of a nearer lead are widened.

    They grow in proportion to the lead. There is no surprise of such leads.
    """
    length = part.values.shape[1]
    nearer = max((part.shortest - 2 * MIN_ERRORS) // 2, 1)
    panel = Panel(without_spikes(part.values), 0, 1, np.zeros(len(part.values), np.int64))
    possible = {lead for lead in leads.values() if lead + MIN_ERRORS < length}
    distinct = sorted({*possible, nearer})
    fitted = models.part(part.places, length) if models is not None else None
    center, quantiles, due = forecast_leads(panel, distinct, LEVELS, (DAY_HOURS,) if seasonal else (), fitted)
    if models is not None and fitted is not None:
        models.used[part.places] = fitted.used
    made = np.stack([center, *quantiles], axis=2)
    known = made[:, distinct.index(nearer)]
    for horizon, lead in leads.items():
        grown = _grown(known, lead / nearer)
        own = made[:, distinct.index(lead)] if lead in possible else grown
        if lead in possible:
            surprises[horizon][part.places] = surprise_of(panel.values[:, -1], due[:, :, distinct.index(lead)].T)
        complete: Bools = np.isfinite(own.sum(axis=1))
        bounds[horizon][part.places] = np.where(complete[:, None], own, grown)


def _grown(bounds: Floats, ratio: float) -> Floats:
    """Bounds of a lead that is longer by a ratio: the errors grow with the lead, as those of a slope do."""
    if ratio < 1.0:
        return np.full_like(bounds, np.nan)
    center = bounds[:, :1]
    limits = np.maximum(center + ratio * (bounds[:, 1:] - center), np.where(bounds[:, 1:] >= 0, 0.0, -np.inf))
    return np.column_stack([center, limits])


def _finite(values: Floats) -> Bounds | None:
    if not np.isfinite(values).all():
        return None
    mean, lower, upper = (float(value) for value in values[[0, 1, -1]])
    # Past errors all on one side leave the median outside of their quantiles.
    return mean, min(lower, mean), max(upper, mean)


def _around_median(values: Floats) -> Floats:
    """Quantiles, with the forecast itself as their median."""
    return np.where(np.array(LEVELS) == 0.5, values[0], values[1:])
