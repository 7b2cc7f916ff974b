"""Scores of a backtest, with those of naive forecasts beside them: `--report`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.backtest.grid import Batch
from kernelcast.predictor.backtest.run import SCORED_LEVELS

COVERAGES: Final = ((0.5, 0.25, 0.75), (0.8, 0.1, 0.9), (0.95, 0.025, 0.975))
"""Nominal coverage, and the levels of its bounds."""


@dataclass(slots=True)
class Scores:
    """Sums over all rows that have a value and a forecast.

    Attributes:
        rows: How many rows.
        errors: Sum of absolute errors by forecast: `mean`, `naive`, `seasonal naive`.
        pinball: Sum of the mean quantile losses.
        covered: Rows within the interval, by nominal coverage.
        episodes: Onsets of anomalies with a score of 1 or more.
        alerts: Alerts that began.
        series_days: Length of all series.
    """

    rows: int = 0
    errors: dict[str, float] = field(default_factory=dict)
    pinball: float = 0.0
    covered: dict[float, int] = field(default_factory=dict)
    episodes: int = 0
    alerts: int = 0
    series_days: float = 0.0

    def count(self, batch: Batch, onset: Floats, alert: Floats) -> None:
        """Count the episodes and alerts of a batch; both of shape (n, t)."""
        self.episodes += int((onset >= 1).sum())
        begins = np.diff(np.nan_to_num(alert), axis=1, prepend=0.0) > 0
        self.alerts += int(begins.sum())
        self.series_days += onset.size * batch.interval_seconds / 86400.0

    def add(self, batch: Batch, centers: Mapping[str, Floats], quantiles: Floats) -> None:
        """Add the forecasts of a batch.

        Args:
            batch: The series.
            centers: Forecasts of each row by name, shape (n, t).
            quantiles: Shape (levels, n, t), at `SCORED_LEVELS`.
        """
        truth = batch.panel.values
        scored = ~np.isnan(truth) & ~np.isnan(quantiles).any(axis=0)
        for values in centers.values():
            scored &= ~np.isnan(values)
        self.rows += int(scored.sum())
        for name, values in centers.items():
            self.errors[name] = self.errors.get(name, 0.0) + float(np.abs(values - truth)[scored].sum())
        levels = np.array(SCORED_LEVELS)[:, None, None]
        gap = truth - quantiles
        self.pinball += float(np.maximum(levels * gap, (levels - 1) * gap).mean(axis=0)[scored].sum())
        for nominal, low, high in COVERAGES:
            lower, upper = (quantiles[SCORED_LEVELS.index(level)] for level in (low, high))
            within = int(((truth >= lower) & (truth <= upper) & scored).sum())
            self.covered[nominal] = self.covered.get(nominal, 0) + within

    def lines(self) -> Sequence[str]:
        """The scores as text."""
        if not self.rows:
            return ["no row has both a value and a forecast: the series are too short to be scored"]
        error = {name: total / self.rows for name, total in self.errors.items()}
        shown = [
            f"rows scored            {self.rows}",
            *(f"mean absolute error    {value:.6g}  {name}" for name, value in error.items()),
            *(
                f"skill                  {1 - error['mean'] / value:+.3f} against {name}"
                for name, value in error.items()
                if name != "mean" and value > 0
            ),
            f"pinball loss           {self.pinball / self.rows:.6g}",
            *(f"coverage of {nominal:.0%} bounds {count / self.rows:.3f}" for nominal, count in self.covered.items()),
            f"anomalies              {self.episodes}, {self.episodes / max(self.series_days, 1e-9):.3f} a series-day",
        ]
        return [*shown, f"alerts                 {self.alerts}"]
