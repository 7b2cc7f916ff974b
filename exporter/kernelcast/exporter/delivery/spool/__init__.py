"""Messages that Kafka has not confirmed: in memory, then on disk within a bound, then replayed in order."""

from kernelcast.exporter.delivery.spool.backlog import SpoolBacklog
from kernelcast.exporter.delivery.spool.disk import DiskSpool

__all__ = ["DiskSpool", "SpoolBacklog"]
