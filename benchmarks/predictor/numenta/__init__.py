"""Files, scoring and other detectors of the Numenta Anomaly Benchmark."""
