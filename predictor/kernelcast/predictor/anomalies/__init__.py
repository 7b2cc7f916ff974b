"""Anomaly scores of recorded series, interval by interval, from the present and the past only.

`backtest.engine` runs the detector. The live predictor judges series with a limit, by `passage`.
"""

from kernelcast.predictor.anomalies.detector import AnomalyDetector, AnomalyStep
from kernelcast.predictor.anomalies.settings import AnomalySettings

__all__ = ["AnomalyDetector", "AnomalySettings", "AnomalyStep"]
