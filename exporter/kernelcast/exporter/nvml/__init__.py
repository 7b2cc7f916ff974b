"""Device metrics through NVML, under DCGM's names: no DCGM, no daemon of NVIDIA's.

`sampler` looks (a process of its own may do it), `reading` is what it saw, `samples` turns that into series.
"""
