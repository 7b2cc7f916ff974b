"""The exporter's side of the process that calls NVML (`nvml/worker.py`)."""
