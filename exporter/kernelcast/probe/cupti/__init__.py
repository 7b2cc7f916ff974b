"""Every kernel, copy and wait of a process, from NVIDIA's CUPTI: opt-in, raw records decoded in C."""

from kernelcast.probe.cupti.method import ActivityMethod

__all__ = ["ActivityMethod"]
