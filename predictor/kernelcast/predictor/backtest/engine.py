"""Computes all columns of a backtest: the series of a table, batch by batch. `backtest.command` runs it once."""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from kernelcast.predictor.anomalies.detector import AnomalyDetector
from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.backtest.breaches import NAMES as BREACH_NAMES
from kernelcast.predictor.backtest.breaches import BreachOptions, breach_columns
from kernelcast.predictor.backtest.causes import alert_causes, cause_name
from kernelcast.predictor.backtest.grid import GridOptions, SeriesBatch, batches, spread
from kernelcast.predictor.backtest.output import Cell
from kernelcast.predictor.backtest.report import BacktestScores
from kernelcast.predictor.backtest.run import (
    BacktestOptions,
    Future,
    check_leads,
    fitted,
    forecasts,
    futures,
    naive_forecasts,
    quantile_columns,
)
from kernelcast.predictor.backtest.table import CsvTable, SeriesKey

CAUSE: Final = "cause"
ROWS_AT_ONCE: Final = 256
"""Series of a batch that are computed together: bounds the memory, and gives progress."""


def column_names(options: BacktestOptions) -> list[str]:
    """Names of the columns after `value`."""
    forecast_names = ["mean", "lower", "upper", *quantile_columns(options.levels)]
    return ["anomaly_score", "anomaly_onset", *forecast_names, *BREACH_NAMES, CAUSE]


class Backtest:
    """One backtest.

    Attributes:
        scores: Filled by `results` where `scored` is set.
    """

    def __init__(
        self,
        table: CsvTable,
        grid: GridOptions,
        options: BacktestOptions,
        *,
        scored: bool = False,
        breaches: BreachOptions | None = None,
        progress: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> None:
        """Prepare a run.

        Args:
            table: The rows.
            grid: Interval and season, where the user gave them.
            options: Everything else.
            scored: Whether to fill `scores`.
            breaches: Definition of a breach; None for no limit.
            progress: Called with the series that are done, and all.

        Raises:
            ConfigurationError: A series does not fit on a grid, or a time ahead is too long.
        """
        self._options, self._scored, self._progress = options, scored, progress
        self._breaches = breaches or BreachOptions()
        self._batches = [part for batch in batches(table, grid) for part in batch.parts(ROWS_AT_ONCE)]
        for batch in self._batches:
            check_leads(batch, options)
        self.scores = BacktestScores()

    def results(self) -> tuple[Mapping[int, Mapping[str, Cell]], Mapping[SeriesKey, Future]]:
        """Return the columns of each row, by its number, and the forecasts after the end of each series."""
        rows: dict[int, dict[str, Cell]] = {}
        after: dict[SeriesKey, Future] = {}
        total, done = sum(batch.panel.rows for batch in self._batches), 0
        for batch in self._batches:
            anomalies, breaches = anomaly_scores(batch), breach_columns(batch, self._breaches)
            models = fitted(batch, self._options)
            forecast = forecasts(batch, self._options, models, scored=self._scored)
            columns = anomalies | forecast.columns(self._options) | breaches
            causes = {CAUSE: alert_causes(batch, breaches["alert"], self._breaches)}
            for number, cells in spread(batch, columns | causes).items():
                rows[number] = {**cells, CAUSE: cause_name(cells[CAUSE])}
            self.scores.count(batch, anomalies["anomaly_onset"], breaches, self._breaches)
            after |= {future.series.key: future for future in futures(batch, self._options, models)}
            if self._scored:
                centers = {"mean": forecast.center} | naive_forecasts(batch, self._options)
                self.scores.add(batch, centers, forecast.scored_quantiles)
            done += batch.panel.rows
            self._progress(done, total)
        return rows, after


def anomaly_scores(batch: SeriesBatch) -> dict[str, Floats]:
    """Columns `anomaly_score` and `anomaly_onset`, each of shape (n, t)."""
    rows = batch.panel.rows
    score, onset = np.zeros((2, rows, batch.panel.length))
    detector = AnomalyDetector(rows, batch.interval_seconds, batch.seasons[0] if batch.seasons else 0)
    for interval in range(batch.panel.length):
        step = detector.step(batch.panel.values[:, interval])
        score[:, interval], onset[:, interval] = step.score, step.onset
    score[batch.excused] = onset[batch.excused] = 0.0
    return {"anomaly_score": score, "anomaly_onset": onset}
