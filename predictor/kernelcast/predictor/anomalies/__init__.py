"""Anomaly scores of many series at once, row by row, from the present and the past only."""

from kernelcast.predictor.anomalies.detector import AnomalyDetector, AnomalyStep
from kernelcast.predictor.anomalies.kinds import AnomalyKind
from kernelcast.predictor.anomalies.settings import AnomalySettings

__all__ = ["AnomalyDetector", "AnomalyKind", "AnomalySettings", "AnomalyStep"]
