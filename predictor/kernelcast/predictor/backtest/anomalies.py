"""Columns with the anomaly scores of recorded series, for `Backtest`."""

import numpy as np

from kernelcast.predictor.anomalies.detector import AnomalyDetector
from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.backtest.grid import SeriesBatch


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
