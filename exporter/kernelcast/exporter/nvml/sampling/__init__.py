"""One sample of all GPUs: which calls of NVML, and what they return."""
