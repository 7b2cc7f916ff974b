"""Messages that Kafka has not confirmed: in memory, then on disk within a bound, then replayed in order."""

from kernelcast.exporter.spool.backlog import SpoolBacklog
from kernelcast.exporter.spool.disk import DiskSpool

__all__ = ["DiskSpool", "SpoolBacklog"]
