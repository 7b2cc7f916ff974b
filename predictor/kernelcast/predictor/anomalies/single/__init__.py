"""The anomaly detector for one recorded series: the results of `AnomalyDetector`, without an array for each step."""

from kernelcast.predictor.anomalies.single.series import series_steps

__all__ = ["series_steps"]
