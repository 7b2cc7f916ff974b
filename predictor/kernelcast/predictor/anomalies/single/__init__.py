"""The anomaly detector for one recorded series: the results of `AnomalyDetector`, computed with scalars.

`backtest.anomalies` calls `series_steps` where a recording has few series. Each module has the arithmetic of the module
of the same name in `anomalies`; a change there needs the same change here, and a test compares both bit for bit.
"""

from kernelcast.predictor.anomalies.single.series import series_steps

__all__ = ["series_steps"]
