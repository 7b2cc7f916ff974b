"""Bus bandwidth and time of NCCL's operations, from the files of NVIDIA's NCCL Inspector."""

from kernelcast.exporter.nccl_inspector.source import nccl_inspector_source

__all__ = ["nccl_inspector_source"]
