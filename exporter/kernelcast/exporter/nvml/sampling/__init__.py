"""One sample of all GPUs through calls of NVML."""
