"""Device metrics through NVML, under DCGM's names: no DCGM, no daemon of NVIDIA's.

`sampling/` queries NVML, in the daemon in a process of its own (`isolation/`, `worker.py`); `sampling/reading.py` is
the result; `samples.py` converts it to series; the daemon polls `source.py`.
"""
