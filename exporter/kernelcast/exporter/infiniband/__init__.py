"""InfiniBand and RoCE ports of the node, from sysfs."""

from kernelcast.exporter.infiniband.assembly import infiniband_source

__all__ = ["infiniband_source"]
