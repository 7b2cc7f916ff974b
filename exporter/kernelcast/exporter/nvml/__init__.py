"""Device metrics through NVML, under DCGM's names: no DCGM, no daemon of NVIDIA's.

`sampler` queries NVML, possibly in a separate process; `reading` is its result; `samples` converts that to series.
"""
