"""Jumps towards the end of a partition when reading has fallen too far behind.

`Intake` calls `skip_if_behind` for each partition once a second.

The lag is measured with Kafka's own times, so a wrong clock here or at a producer skips nothing.
"""

from typing import Final

import structlog
from confluent_kafka import TopicPartition

from kernelcast.bridge.clock import Clock
from kernelcast.bridge.instruments import Instruments
from kernelcast.bridge.intake.inquiry import OffsetConsumer
from kernelcast.bridge.partitions.bounds import Bounds
from kernelcast.bridge.partitions.ownership import Ownership
from kernelcast.bridge.partitions.partition import Partition

PAUSE_SECONDS: Final = 10.0
"""Interval between two queries for a partition that lags by the local clock."""


class Skipper:
    """Skips messages that are too old to be worth reading. Only the consuming thread uses it."""

    def __init__(self, source: OffsetConsumer, bounds: Bounds, instruments: Instruments, clock: Clock) -> None:
        self._source, self._bounds, self._instruments, self._clock = source, bounds, instruments, clock
        self._log = structlog.stdlib.get_logger("bridge.skip")
        self._due: dict[int, float] = {}
        self._free_at = 0.0

    def skip_if_behind(
        self, ownership: Ownership, partition: Partition, *, max_seconds: float, back_seconds: float
    ) -> bool:
        """Skip messages if a partition is more than `max_seconds` behind; continue with those `back_seconds` old.

        The end of the partition is queried again: after a pause, the end from the last fetch may be as old as the
        pause. Then messages are read for as long as the queries took, before the next partition's turn.

        Returns:
            Whether messages were skipped.

        Raises:
            BrokerError: Kafka refuses the seek.
        """
        now_seconds = self._clock.monotonic()
        if partition.waits or partition.position >= partition.high:
            return False
        lag_ms = self._clock.now_ns() // 1_000_000 - partition.newest_append_ms
        if not partition.newest_append_ms or lag_ms <= max_seconds * 1e3:
            return False
        if now_seconds < max(self._free_at, self._due.get(partition.number, 0.0)):
            return False
        self._due[partition.number] = now_seconds + PAUSE_SECONDS
        high = self._bounds.gates([partition.key]).get(partition.key)
        partition.high = max(partition.high, high or 0)
        target = None if high is None else self._target(partition, max_seconds, back_seconds)
        self._free_at = 2 * self._clock.monotonic() - now_seconds
        return target is not None and self._jump(ownership, partition, target)

    def _target(self, partition: Partition, max_seconds: float, back_seconds: float) -> int | None:
        """Return the offset to skip to; None if no message is at least `max_seconds` newer than the last one read."""
        too_young_ns = partition.newest_append_ms * 1_000_000 + round(max_seconds * 1e9)
        wanted_ns = self._clock.now_ns() - round(back_seconds * 1e9)
        confirmed = self._bounds.starts([partition.key], too_young_ns).get(partition.key, -1)
        if not partition.position < confirmed < partition.high:
            return None
        wanted = self._bounds.starts([partition.key], wanted_ns).get(partition.key, -1)
        return wanted if confirmed < wanted < partition.high else confirmed

    def _jump(self, ownership: Ownership, partition: Partition, target: int) -> bool:
        topic, number = partition.key
        self._source.seek(TopicPartition(topic, number, target))
        skipped = target - partition.position
        ownership.jump(partition, to=target, high=partition.high)
        self._instruments.skipped.labels(topic).inc(skipped)
        self._log.warning("messages skipped, reading was too far behind", topic=topic, partition=number, count=skipped)
        return True
