"""Recordings of NVML's answers: the file format, a recorder, and conversion of `nvidia-smi -q`."""
