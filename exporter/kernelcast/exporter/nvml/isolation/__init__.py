"""The process that calls NVML, as the exporter sees it."""
