"""Scores of quantile forecasts: coverage, pinball loss, and skill against naive forecasts."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.scoring.cells import Cells, ratio
from kernelcast.predictor.scoring.classes import CLASSES
from kernelcast.predictor.scoring.pending import LATE_BLOCKS, Pending
from kernelcast.predictor.scoring.priors import NO_PLACE, shipped, states, surprises, with_base_widths
from kernelcast.predictor.scoring.widening import Widening, needed_factors, widened

LEVELS: Final = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
"""Quantile levels of every forecast: the median, and the bounds of the 50, 80 and 95 % intervals."""
COVERAGES: Final = ((0.5, 2, 4), (0.8, 1, 5), (0.95, 0, 6))
"""Nominal coverage, and the places of its bounds in `LEVELS`."""
_MEDIAN: Final = LEVELS.index(0.5)
_EIGHTY: Final = COVERAGES[1][1:]
_PAIRS: Final = tuple((low, high) for _, low, high in COVERAGES)


def surprise_of(value: Floats, due: Floats) -> Floats:
    """Distance of values from their forecasts of a horizon earlier, in half-widths of the 80 % interval.

    Args:
        value: Shape (n,).
        due: Shape (n, levels), at `LEVELS`, before they were scaled.
    """
    return surprises(value, due[:, _MEDIAN], *(due[:, place] for place in _EIGHTY))


class IntervalScores:
    """Pending quantile forecasts, and the scores of those whose block has ended. One thread uses it at a time.

    Attributes:
        pending: The claims.
        widening: Factors by which intervals are scaled before they are published.
        cells: Sums over claims; `inside` and `bounded` have an axis of nominal coverages.
        unscored: Claims whose block came without a value.
    """

    def __init__(self, horizons_seconds: Floats, leads: Ints) -> None:
        """Begin without claims.

        Args:
            horizons_seconds: Shape (h,).
            leads: Shape (h,), blocks of each horizon.
        """
        horizons = len(horizons_seconds)
        many, wide = len(COVERAGES), np.zeros((0, len(LEVELS)), np.float32)
        number, value = np.zeros(0, np.int64), np.zeros(0, np.float32)
        factors = np.zeros((0, many), np.float32)
        self.pending = Pending(
            {
                "class": number, "state": number,
                "quantiles": wide, "factors": factors, "naive": value, "seasonal": value,
            }
        )  # fmt: skip
        coverages, self._prior = tuple(nominal for nominal, _, _ in COVERAGES), shipped()
        self._places = self._prior.places(horizons_seconds, leads)
        self._leads = leads
        self.widening = Widening(len(CLASSES), horizons, coverages, leads, self._prior, self._places)
        self.cells = Cells(
            len(CLASSES),
            horizons,
            {
                "inside": (many,), "bounded": (many,), "pinball": (), "pinballed": (),
                "error": (), "naive": (), "error_seasonal": (), "seasonal": (),
            },
        )  # fmt: skip
        self.unscored = 0

    def claim(  # noqa: PLR0913, PLR0917  one array each
        self,
        series: Ints,
        classes: Ints,
        horizon: int,
        block: int,
        quantiles: Floats,
        naive: Floats,
        seasonal: Floats,
        surprise: Floats,
    ) -> None:
        """Remember forecasts of series whose turn it is, and that have none pending for this horizon.

        A series has its turn once in a horizon, at a block that follows from its number: so outcomes come at every
        block, not all at once when a horizon is over.

        Args:
            series: Shape (n,).
            classes: Shape (n,).
            horizon: Its number.
            block: The newest block that they rest on.
            quantiles: Shape (n, levels), before they are scaled; NaN where there is none.
            naive: Shape (n,), the last value.
            seasonal: Shape (n,), the value one season before; NaN where there is no season.
            surprise: Shape (n,), of the value of the newest block.
        """
        lead = int(self._leads[horizon])
        fresh = self.pending.open_for(series, horizon) & np.isfinite(quantiles[:, _MEDIAN])
        fresh &= (block - series) % lead == 0
        count, kinds = int(fresh.sum()), states(surprise[fresh])
        rebased = self._rebased(quantiles[fresh], classes[fresh], horizon, kinds)
        self.pending.add(
            {
                "series": series[fresh],
                "horizon": np.full(count, horizon),
                "due": np.full(count, block + lead),
                "class": classes[fresh],
                "state": kinds,
                "quantiles": rebased.astype(np.float32),
                "factors": self.widening.factors(classes[fresh], horizon, kinds).astype(np.float32),
                "naive": naive[fresh].astype(np.float32),
                "seasonal": seasonal[fresh].astype(np.float32),
            }
        )

    def settle(self, block: int, series: Ints, values: Floats) -> None:
        """Score the claims of some series for a block; give up those that no value has come for.

        Args:
            block: Its number.
            series: Shape (n,), without repetitions.
            values: Shape (n,), mean of each in the block.
        """
        has_value, place = self.pending.matched(series)
        due = self.pending.ints("due")
        truth = np.where(has_value & (due == block), values[place] if len(values) else np.nan, np.nan)
        chosen = (has_value & (due <= block)) | (due < block - LATE_BLOCKS)
        seen = truth[chosen]
        taken = self.pending.take(chosen)
        known = np.isfinite(seen)
        self.unscored += int((~known).sum())
        rows = {name: column[known] for name, column in taken.items()}
        classes, horizons = rows["class"].astype(np.int64), rows["horizon"].astype(np.int64)
        quantiles, values = rows["quantiles"].astype(np.float64), seen[known]
        published = widened(quantiles, rows["factors"].astype(np.float64), _PAIRS, _MEDIAN)
        self._score_intervals(classes, horizons, published, values)
        naive, seasonal = rows["naive"].astype(np.float64), rows["seasonal"].astype(np.float64)
        self._score_center(classes, horizons, np.stack([quantiles[:, _MEDIAN], naive, seasonal]), values)
        self.cells.forget()
        needed = needed_factors(quantiles, values, _PAIRS, _MEDIAN)
        self.widening.add(classes, horizons, needed, rows["state"].astype(np.int64), block)

    def published(self, quantiles: Floats, classes: Ints, horizon: int, surprise: Floats) -> Floats:
        """Quantiles with scaled intervals, as they are published, shape (n, levels).

        Args:
            quantiles: Shape (n, levels).
            classes: Shape (n,).
            horizon: Its number.
            surprise: Shape (n,), of the value of the newest block.
        """
        kinds = states(surprise)
        base = self._rebased(quantiles, classes, horizon, kinds)
        return widened(base, self.widening.factors(classes, horizon, kinds), _PAIRS, _MEDIAN)

    def _rebased(self, quantiles: Floats, classes: Ints, horizon: int, kinds: Ints) -> Floats:
        """Give intervals at the horizons of the shipped factors their base half-widths; others stay as they are."""
        place = self._places[horizon]
        if place == NO_PLACE:
            return quantiles
        return with_base_widths(quantiles, self._prior.widths[place, classes, kinds], _PAIRS, _MEDIAN)

    def _score_intervals(self, classes: Ints, horizons: Ints, quantiles: Floats, truth: Floats) -> None:
        def add(name: str, values: NDArray[Any]) -> None:
            self.cells.add(name, classes, horizons, values)

        bounds = np.stack([quantiles[:, [low, high]] for low, high in _PAIRS], axis=1)
        bounded: Bools = np.asarray(np.isfinite(bounds).all(axis=2))
        inside: Bools = bounded & (truth[:, None] >= bounds[:, :, 0]) & (truth[:, None] <= bounds[:, :, 1])
        add("count", np.ones(len(truth)))
        add("bounded", bounded)
        add("inside", inside)
        whole: Bools = np.asarray(np.isfinite(quantiles).all(axis=1))
        gap = truth[:, None] - quantiles
        loss: Floats = np.maximum(np.array(LEVELS) * gap, (np.array(LEVELS) - 1.0) * gap).mean(axis=1)
        add("pinballed", whole)
        add("pinball", np.where(whole, loss, 0.0))

    def _score_center(self, classes: Ints, horizons: Ints, forecasts: Floats, truth: Floats) -> None:
        """Add absolute errors; `forecasts` has the median, the naive and the seasonal naive forecast."""
        error, naive, seasonal = np.abs(forecasts - truth)
        for name, values in (
            ("error", np.where(np.isfinite(naive), error, 0.0)),
            ("naive", naive),
            ("error_seasonal", np.where(np.isfinite(seasonal), error, 0.0)),
            ("seasonal", seasonal),
        ):
            self.cells.add(name, classes, horizons, values)

    def coverage(self) -> Floats:
        """Share of values within each interval, shape (classes, horizons, coverages); NaN without claims."""
        return ratio(self.cells["inside"], self.cells["bounded"])

    def pinball(self) -> Floats:
        """Mean quantile loss in the series' unit, shape (classes, horizons); twice it is the CRPS, approximately."""
        return ratio(self.cells["pinball"], self.cells["pinballed"])

    def skill(self) -> dict[str, Floats]:
        """1 less the ratio of mean absolute errors, by naive forecast, shape (classes, horizons)."""
        naive, seasonal = self.cells["naive"], self.cells["seasonal"]
        return {
            "naive": 1.0 - ratio(self.cells["error"], naive),
            "seasonal_naive": 1.0 - ratio(self.cells["error_seasonal"], seasonal),
        }
