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
    """Counts each lost message once, also if the offsets are read again; for the member's thread."""

    def __init__(self, watermarks: Watermarks, metrics: DestinationMetrics, clock: Clock) -> None:
        """Start with nothing counted."""
        self._watermarks, self._metrics, self._clock = watermarks, metrics, clock
        self._log = structlog.stdlib.get_logger("bridge.push.backlog")
        self._counted: dict[Key, list[tuple[int, int]]] = {}  # disjoint ranges of offsets, where one may be read again
        self._lows: dict[Key, tuple[int, float]] = {}  # the first offset kept, and when it may be asked for again

    def note_gap(self, key: Key, begin: int, end: int, acknowledged: int) -> None:
        """Count the messages between two offsets, read one after the other, that retention has deleted.

        A single offset without a message is the marker of a transaction, since retention deletes whole segments;
        longer gaps are compared with the first offset that Kafka has kept.
        """
        if begin >= 0 and end - begin >= 2:
            self._count(key, begin, min(self._low(key), end), acknowledged)

    def note_start(self, key: Key, committed: int, low: int, high: int) -> None:
        """Count the messages between the committed offset and the first one kept."""
        if any(end > high for _, end in self._counted.get(key, ())):  # the topic was deleted and made again
            del self._counted[key]
        self._count(key, committed, low, committed)

    def _count(self, key: Key, begin: int, end: int, acknowledged: int) -> None:
        if end <= begin:
            return
        known = [one for one in self._counted.get(key, ()) if one[1] > acknowledged]
        messages = end - begin - sum(max(0, min(end, stop) - max(begin, start)) for start, stop in known)
        apart = [(start, stop) for start, stop in known if stop <= begin or end <= start]
        met = [(begin, end), *(one for one in known if one not in apart)]
        self._counted[key] = [*apart, (min(start for start, _ in met), max(stop for _, stop in met))]
        if messages:
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
