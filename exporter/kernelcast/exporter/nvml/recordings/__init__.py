"""NVML recorded and replayed."""
