"""TPUs, through the metric service of the program that has them."""

from kernelcast.exporter.tpu.source import TpuSource

__all__ = ["TpuSource"]
