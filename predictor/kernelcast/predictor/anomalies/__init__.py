"""Anomaly scores of many series at once, interval by interval, from the present and the past only.

`cycle.anomaly_scores` runs the detector on live series, `backtest.anomalies` on recorded ones.
"""

from kernelcast.predictor.anomalies.detector import AnomalyDetector, AnomalyStep
from kernelcast.predictor.anomalies.kinds import AnomalyKind
from kernelcast.predictor.anomalies.settings import AnomalySettings

__all__ = ["AnomalyDetector", "AnomalyKind", "AnomalySettings", "AnomalyStep"]
