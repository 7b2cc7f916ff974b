"""Scores of a backtest, with those of naive forecasts beside them: `--report`. `Backtest` adds batch by batch."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.backtest.breaches import LONGEST_SECONDS, BreachOptions
from kernelcast.predictor.backtest.grid import SeriesBatch
from kernelcast.predictor.backtest.run import SCORED_LEVELS
from kernelcast.predictor.passage.run import MIN_BLOCKS

BINS: Final = (0.0, 0.05, 0.2, 0.5, 0.8, 0.95, 1.0)
"""Edges of the bins of breach probabilities; per bin their mean is compared with the share of breaches that came."""

COVERAGES: Final = ((0.5, 0.25, 0.75), (0.8, 0.1, 0.9), (0.95, 0.025, 0.975))
"""Nominal coverage, and the levels of its bounds."""


@dataclass(slots=True)
class BreachCounts:
    """Counts of breach probabilities and alerts, with the breaches that followed.

    Attributes:
        published: Sum of the probabilities, shape (bins,); rows in which the limit is passed do not count.
        breached: Number of them after which the limit was passed within the time that they look ahead, shape (bins,).
        rows: Number of them, shape (bins,).
        squares: Sum of their squared errors.
        lead_seconds: From each alert to the breach that it contains; 0 where it was not announced.
        alerts: Number of alerts by what came within a day: `right`, `false`, or `undecided` as the recording ends.
        abstained: Rows without a probability, by reason.
    """

    published: Floats = field(default_factory=lambda: np.zeros(len(BINS) - 1))
    breached: Floats = field(default_factory=lambda: np.zeros(len(BINS) - 1))
    rows: Floats = field(default_factory=lambda: np.zeros(len(BINS) - 1))
    squares: float = 0.0
    lead_seconds: list[float] = field(default_factory=list)
    alerts: Counter[str] = field(default_factory=Counter)
    abstained: Counter[str] = field(default_factory=Counter)

    def add(self, batch: SeriesBatch, columns: Mapping[str, Floats], options: BreachOptions) -> None:
        """Add the columns of a batch, each of shape (n, t)."""
        probability = columns["breach_probability"]
        passed: Bools = (probability == 1) & (columns["seconds_to_threshold"] == 0)
        until = _until_passed(passed)
        horizon = max(1, round(options.reach_seconds(batch.interval_seconds) / batch.interval_seconds))
        left = np.arange(passed.shape[1])[::-1]
        decided = (until <= horizon) | (left >= horizon)
        scored = np.isfinite(probability) & ~passed & decided
        self._add_probabilities(probability[scored], until[scored] <= horizon)
        self._add_alerts(columns["alert"] == 1, passed, until, batch.interval_seconds)
        self._add_abstentions(np.isnan(probability), batch, options)

    def _add_probabilities(self, published: Floats, breached: Bools) -> None:
        place = np.searchsorted(BINS[1:-1], published, side="right")
        for sums, values in (
            (self.published, published),
            (self.breached, breached.astype(np.float64)),
            (self.rows, np.ones(len(published))),
        ):
            sums[:] += np.bincount(place, values, minlength=len(sums))
        self.squares += float(((published - breached) ** 2).sum())

    def _add_alerts(self, alert: Bools, passed: Bools, until: Ints, interval_seconds: float) -> None:
        day = round(LONGEST_SECONDS / interval_seconds)
        length = alert.shape[1]
        for row, firing in enumerate(alert):
            edges = np.flatnonzero(np.diff(np.r_[False, firing, False].astype(np.int8))).reshape(-1, 2)
            for begin, end in edges.tolist():
                wait = 0 if passed[row, begin] else int(until[row, begin])
                if begin + wait < end:
                    self.lead_seconds.append(wait * interval_seconds)
                right = wait <= day or begin + wait < end
                self.alerts["right" if right else "false" if begin + day < length else "undecided"] += 1

    def _add_abstentions(self, absent: Bools, batch: SeriesBatch, options: BreachOptions) -> None:
        limited = np.full(absent.shape[0], bool(options.meaning.own_ratio)) | np.isfinite(options.limits(batch))
        width = options.block_intervals(batch.interval_seconds)
        young = np.arange(absent.shape[1]) < MIN_BLOCKS * width - 1
        reasons = {
            "no limit": ~limited[:, None],
            f"fewer than {MIN_BLOCKS} blocks": limited[:, None] & young,
            "limit not known yet, too much noise, or too short a history": limited[:, None] & ~young,
        }
        rows = np.stack([np.bincount(one.interval_of_row, minlength=absent.shape[1]) for one in batch.series])
        self.abstained.update({reason: int(rows[absent & which].sum()) for reason, which in reasons.items()})

    def lines(self, series_days: float) -> Sequence[str]:
        """The scores as text."""
        alerts = ", ".join(f"{self.alerts[name]} {name}" for name in ("right", "false", "undecided"))
        known = self.alerts["right"] + self.alerts["false"]
        precision = f", precision {self.alerts['right'] / known:.3f}" if known else ""
        return [
            *self._probability_lines(),
            f"alerts                 {self.alerts.total()}: {alerts}{precision}",
            f"false alarms           {self.alerts['false'] / max(series_days, 1e-9):.4f} a series-day",
            *self._lead_lines(),
            *(f"abstained              {count} rows: {reason}" for reason, count in self.abstained.items() if count),
        ]

    def _probability_lines(self) -> Sequence[str]:
        rows = self.rows.sum()
        if not rows:
            return []
        rate = self.breached.sum() / rows
        brier, constant = self.squares / rows, rate * (1 - rate)
        skill = f", skill {1 - brier / constant:+.3f} against the share that came" if constant > 0 else ""
        return [
            f"Brier score            {brier:.4f}{skill}, {rate:.4f} of {rows:.0f} rows",
            *(
                f"said {low:.2f} to {high:.2f}      "
                f"mean {published / count:.3f}, came {breached / count:.3f}, {count:.0f} rows"
                for low, high, published, breached, count in zip(
                    BINS, BINS[1:], self.published, self.breached, self.rows, strict=False
                )
                if count
            ),
        ]

    def _lead_lines(self) -> Sequence[str]:
        if not self.lead_seconds:
            return []
        ahead = sum(lead > 0 for lead in self.lead_seconds)
        median = float(np.median(self.lead_seconds)) / 60
        return [
            f"breaches               {len(self.lead_seconds)}, {ahead} alerted before; median lead {median:.0f} min"
        ]


def _until_passed(passed: Bools) -> Ints:
    """Intervals from each one to the next later one with the limit passed, shape (n, t); a huge number if none is."""
    length = passed.shape[1]
    places = np.where(passed, np.arange(length), np.iinfo(np.int64).max // 2)
    later = np.full(places.shape, np.iinfo(np.int64).max // 2)
    later[:, :-1] = np.minimum.accumulate(places[:, ::-1], axis=1)[:, ::-1][:, 1:]
    until: Ints = later - np.arange(length)
    return until


@dataclass(slots=True)
class BacktestScores:
    """Sums over all rows that have a value and a forecast.

    Attributes:
        rows: How many rows.
        errors: Sum of absolute errors by forecast: `mean`, `naive`, `seasonal naive`.
        pinball: Sum of the mean quantile losses.
        covered: Rows within the interval, by nominal coverage.
        episodes: Onsets of anomalies with a score of 1 or more.
        breaches: Of breach probabilities and alerts.
        series_days: Length of all series.
    """

    rows: int = 0
    errors: dict[str, float] = field(default_factory=dict)
    pinball: float = 0.0
    covered: dict[float, int] = field(default_factory=dict)
    episodes: int = 0
    breaches: BreachCounts = field(default_factory=BreachCounts)
    series_days: float = 0.0

    def count(self, batch: SeriesBatch, onset: Floats, columns: Mapping[str, Floats], options: BreachOptions) -> None:
        """Count the episodes, breaches and alerts of a batch; onsets and columns have the shape (n, t)."""
        self.episodes += int((onset >= 1).sum())
        self.breaches.add(batch, columns, options)
        self.series_days += onset.size * batch.interval_seconds / 86400.0

    def add(self, batch: SeriesBatch, centers: Mapping[str, Floats], quantiles: Floats) -> None:
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
        anomalies = f"{self.episodes}, {self.episodes / max(self.series_days, 1e-9):.3f} a series-day"
        return [
            *self._forecast_lines(),
            f"anomalies              {anomalies}",
            *self.breaches.lines(self.series_days),
        ]

    def _forecast_lines(self) -> Sequence[str]:
        if not self.rows:
            return ["no row has both a value and a forecast: the series are too short to be scored"]
        error = {name: total / self.rows for name, total in self.errors.items()}
        return [
            f"rows scored            {self.rows}",
            *(f"mean absolute error    {value:.6g}  {name}" for name, value in error.items()),
            *(
                f"skill                  {1 - error['mean'] / value:+.3f} against {name}"
                for name, value in error.items()
                if name != "mean" and value > 0
            ),
            f"pinball loss           {self.pinball / self.rows:.6g}",
            *(f"coverage of {nominal:.0%} bounds {count / self.rows:.3f}" for nominal, count in self.covered.items()),
        ]
