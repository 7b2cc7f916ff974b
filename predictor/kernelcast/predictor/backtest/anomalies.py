"""Columns with the anomaly scores of recorded series, for `Backtest`."""

from typing import Final

import numpy as np

from kernelcast.predictor.anomalies.detector import AnomalyDetector
from kernelcast.predictor.anomalies.single import series_steps
from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.backtest.grid import SeriesBatch

_ALONE: Final = 16
"""Up to this number of series, one after the other costs less than all of them in arrays."""


def anomaly_scores(batch: SeriesBatch) -> dict[str, Floats]:
    """Columns `anomaly_score` and `anomaly_onset`, each of shape (n, t)."""
    rows = batch.panel.rows
    season = batch.seasons[0] if batch.seasons else 0
    score, onset = np.zeros((2, rows, batch.panel.length))
    if rows <= _ALONE:
        for row, values in enumerate(batch.panel.values):
            found = series_steps(values, batch.interval_seconds, season)
            score[row], onset[row] = found.score, found.onset
    else:
        detector = AnomalyDetector(rows, batch.interval_seconds, season)
        for interval in range(batch.panel.length):
            step = detector.step(batch.panel.values[:, interval])
            score[:, interval], onset[:, interval] = step.score, step.onset
    score[batch.excused] = onset[batch.excused] = 0.0
    return {"anomaly_score": score, "anomaly_onset": onset}
