"""The spool's own metrics, made from the catalogue's rows."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry

from kernelcast.exporter.delivery.spool.disk import REASONS
from kernelcast.runtime.instruments import counter, gauge
from kernelcast.wire.catalogue import exporter as rows


class SpoolCounts:
    """The collectors; every reason starts at 0.

    Args:
        registry: Where they are registered.
        max_bytes: Size limit on disk.
    """

    def __init__(self, registry: CollectorRegistry, max_bytes: int) -> None:
        self.written = counter(rows.SPOOL_WRITTEN, registry)
        self.replayed = counter(rows.SPOOL_REPLAYED, registry)
        dropped = counter(rows.SPOOL_DROPPED, registry)
        self._dropped = {reason: dropped.labels(reason) for reason in REASONS}
        self._bytes = gauge(rows.SPOOL_BYTES, registry)
        gauge(rows.SPOOL_MAX_BYTES, registry).set(max_bytes)
        self._messages = gauge(rows.SPOOL_MESSAGES, registry)

    def drop(self, reason: str, count: int) -> None:
        """Count lost messages."""
        self._dropped[reason].inc(count)

    def show(self, on_disk: Callable[[], tuple[int, int]]) -> None:
        """Show bytes and messages on disk, read at each scrape."""
        self._bytes.set_function(lambda: on_disk()[0])
        self._messages.set_function(lambda: on_disk()[1])
