"""Queries Kafka for the offset at which reading starts, and the offset that must be reached before exposure.

Each leader is queried separately, so a failed query affects only its partitions. The queries follow each other, so the
waits for unavailable brokers add up.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Protocol

import structlog
from confluent_kafka import TopicPartition

from kernelcast.bridge.partitions.partition import Key, keys_of
from kernelcast.wire.errors import BrokerError


class Answering(Protocol):
    """The part of a Kafka consumer that answers queries about offsets."""

    def leaders(self) -> dict[Key, int]:
        """Return the id of each partition's leader; negative if it has none."""

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        """Return the low and the high watermark: the first offset kept, and the next one to be written."""

    def offsets_for_time(self, partitions: Sequence[TopicPartition], time_ns: int) -> list[TopicPartition]:
        """Return the first offset at or after a time, for each partition."""

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return Kafka's ids of topics; absent if the topic does not exist or Kafka has no ids."""

    def newest_timestamps_ms(self, partitions: Sequence[TopicPartition]) -> dict[Key, int]:
        """Return the newest timestamp in each partition; absent if there is none or Kafka does not support it."""

    def committed(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the group's committed offsets; negative if it has none."""


class Bounds:
    """Queries Kafka for offsets and times. A failed query is logged; its partitions are absent from the result."""

    def __init__(self, source: Answering) -> None:
        self._source = source
        self._log = structlog.stdlib.get_logger("bridge.bounds")

    def starts(self, keys: Sequence[Key], time_ns: int) -> dict[Key, int]:
        """Return the first offset at or after a time; negative for the beginning, if Kafka keeps no time index."""
        found: dict[Key, int] = {}
        for group in self._by_leader(keys):
            try:
                starts = self._source.offsets_for_time(group, time_ns)
            except BrokerError as error:
                self._log.warning("offsets by time unknown", partitions=len(group), reason=str(error))
                continue
            found.update((key, start.offset) for key, start in zip(keys_of(group), starts, strict=True))
        return found

    def gates(self, keys: Sequence[Key]) -> dict[Key, int]:
        """Return the present ends (high watermarks); 0 for a partition without messages."""
        found: dict[Key, int] = {}
        for group in self._by_leader(keys):
            for partition in group:
                try:
                    low, high = self._source.watermarks(partition)
                except BrokerError as error:
                    self._log.warning("high watermark unknown", topic=partition.topic, reason=str(error))
                    break
                found[partition.topic, partition.partition] = high if high > low else 0
        return found

    def partitions(self) -> list[Key] | None:
        """Return all partitions of all topics; None if Kafka does not answer."""
        try:
            return sorted(self._source.leaders())
        except BrokerError as error:
            self._log.info("partitions unknown", reason=str(error))
            return None

    def topic_ids(self, topics: set[str]) -> dict[str, str]:
        """Return the ids of topics; a topic that is deleted and created again gets a new id."""
        try:
            return self._source.topic_ids(topics) if topics else {}
        except BrokerError as error:
            self._log.info("topic ids unknown", topics=len(topics), reason=str(error))
            return {}

    def newest_ms(self, topics: set[str]) -> dict[Key, int]:
        """Return the newest timestamps of all partitions of some topics, including those of other replicas."""
        try:
            led = [key for key, leader in self._source.leaders().items() if leader >= 0 and key[0] in topics]
            return self._source.newest_timestamps_ms([TopicPartition(*key) for key in led]) if led else {}
        except BrokerError as error:
            self._log.info("newest append times unknown", topics=len(topics), reason=str(error))
            return {}

    def committed(self, keys: Sequence[Key], topic_ids: Mapping[str, str]) -> dict[Key, int]:
        """Return the group's committed offsets, without those that were committed for a topic with another id."""
        try:
            found = self._source.committed([TopicPartition(*key) for key in keys]) if keys else []
        except BrokerError as error:
            self._log.warning("committed offsets unknown; dead letters may be repeated", reason=str(error))
            return {}
        return {
            key: item.offset
            for key, item in zip(keys_of(found), found, strict=True)
            if item.offset >= 0 and not (item.metadata and topic_ids.get(key[0], item.metadata) != item.metadata)
        }

    def _by_leader(self, keys: Sequence[Key]) -> Iterator[list[TopicPartition]]:
        if not keys:
            return
        try:
            leaders = self._source.leaders()
        except BrokerError as error:
            self._log.warning("leaders unknown", reason=str(error))
            return
        led = sorted((leaders.get(key, -1), key) for key in keys)
        for leader, group in groupby(led, key=lambda item: item[0]):
            if leader >= 0:
                yield [TopicPartition(*key) for _, key in group]
