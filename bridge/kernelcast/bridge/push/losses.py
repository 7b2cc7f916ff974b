"""Counts messages that Kafka's retention has deleted before they were sent."""

from collections.abc import Callable
from typing import Final

import structlog
from confluent_kafka import TopicPartition

from kernelcast.bridge.clock import Clock
from kernelcast.bridge.push.instruments import DestinationMetrics
from kernelcast.wire.errors import BrokerError

QUERY_SECONDS: Final = 1.0
"""Shortest time between two queries for one partition: a compacted topic may have a gap before each message."""
UNKNOWN: Final = -1

Key = tuple[str, int]
Watermarks = Callable[[TopicPartition], tuple[int, int]]
"""Returns the first offset kept of a partition, and the next to be written: a query."""


class LostMessages:
    """Counts each lost message once, when all messages before it are acknowledged or lost; for the member's thread.

    Only then can the offset after it be committed: counted earlier, it would be counted again after a restart.
    """

    def __init__(self, watermarks: Watermarks, metrics: DestinationMetrics, clock: Clock) -> None:
        """Start with nothing counted."""
        self._watermarks, self._metrics, self._clock = watermarks, metrics, clock
        self._log = structlog.stdlib.get_logger("bridge.push.backlog")
        self._gaps: dict[Key, list[tuple[int, int]]] = {}  # lost offsets after messages that wait, in order
        self._counted: dict[Key, int] = {}  # lost messages before this offset are counted, should its commit fail
        self._lows: dict[Key, tuple[int, float]] = {}  # the first offset kept, and when it may be asked for again

    def note_gap(self, key: Key, begin: int, end: int) -> None:
        """Note a gap of offsets between two messages: as far as Kafka keeps none of them, retention has deleted them.

        Not for a gap of one offset, the marker of a transaction: retention deletes whole segments.
        """
        if (stop := min(self._low(key), end)) > begin:
            self._gaps.setdefault(key, []).append((begin, stop))

    def note_start(self, key: Key, committed: int, low: int, high: int) -> None:
        """Count the messages between the committed offset and the first one kept."""
        if self._counted.get(key, 0) > high:  # the topic was deleted and made again
            self.forget(key)
        self._count(key, committed, low)

    def count_after(self, key: Key, acknowledged: int) -> int:
        """Count the lost messages that follow acknowledged ones, and return the offset after them."""
        waiting = []
        for begin, end in self._gaps.pop(key, ()):
            if begin > acknowledged:
                waiting.append((begin, end))
                continue
            self._count(key, begin, end)
            acknowledged = max(acknowledged, end)
        if waiting:
            self._gaps[key] = waiting
        return acknowledged

    def forget(self, key: Key) -> None:
        """Forget the offsets of a log that was replaced."""
        for known in (self._gaps, self._counted, self._lows):
            known.pop(key, None)

    def forget_gaps(self, key: Key) -> None:
        """Forget gaps after messages that are read again."""
        self._gaps.pop(key, None)

    def _count(self, key: Key, begin: int, end: int) -> None:
        messages = end - max(begin, self._counted.get(key, 0))
        if messages > 0:
            self._counted[key] = end
            self._metrics.lost(messages)
            where = {"destination": self._metrics.name, "topic": key[0]}
            self._log.error("messages expired before they were sent", **where, messages=messages)

    def _low(self, key: Key) -> int:
        """Return the first offset that Kafka has kept, as of the last second; UNKNOWN if it does not answer."""
        low, due = self._lows.get(key, (UNKNOWN, 0.0))
        if self._clock.monotonic() >= due:
            try:
                low, _ = self._watermarks(TopicPartition(*key))
            except BrokerError as error:
                low = UNKNOWN
                self._log.warning("lost messages unknown", destination=self._metrics.name, reason=str(error))
            self._lows[key] = low, self._clock.monotonic() + QUERY_SECONDS
        return low
