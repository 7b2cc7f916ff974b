"""Anomaly scores of recorded series."""

import numpy as np

from kernelcast.predictor.anomalies.detector import AnomalyDetector
from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.backtest.grid import Batch


def anomaly_scores(batch: Batch) -> dict[str, Floats]:
    """Columns `anomaly_score` and `anomaly_onset`, each of shape (n, t)."""
    rows = batch.panel.rows
    season = batch.seasons[0] if batch.seasons else 0
    detector = AnomalyDetector(rows, batch.interval_seconds, season)
    score, onset = np.zeros((2, rows, batch.panel.length))
    for at in range(batch.panel.length):
        step = detector.step(batch.panel.values[:, at])
        score[:, at], onset[:, at] = step.score, step.onset
    return {"anomaly_score": score, "anomaly_onset": onset}
