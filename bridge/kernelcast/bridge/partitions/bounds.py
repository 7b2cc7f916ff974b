"""Where partitions are to be read from, and up to where before they are exposed: questions to Kafka.

They are asked leader by leader, so that a broker that is away keeps waiting only the partitions it leads.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Protocol

import structlog
from confluent_kafka import TopicPartition

from kernelcast.bridge.partitions.ownership import keys_of
from kernelcast.bridge.partitions.partition import Key
from kernelcast.wire.errors import BrokerError


class Answering(Protocol):
    """The part of a Kafka consumer that answers questions about offsets."""

    def leaders(self) -> dict[Key, int]:
        """The broker that leads each partition; negative where none does."""

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset kept, and the next to be written."""

    def offsets_for_time(self, partitions: Sequence[TopicPartition], time_ns: int) -> list[TopicPartition]:
        """Where each partition stood at a time."""

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Kafka's ids of topics; absent where there is no such topic or Kafka has no ids."""

    def newest_timestamps_ms(self, partitions: Sequence[TopicPartition]) -> dict[Key, int]:
        """The newest timestamp in each partition; absent where there is none or Kafka does not say."""

    def committed(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """The group's committed offsets; negative where it has none."""


class Bounds:
    """Asks; what is not answered is absent from the result, and logged."""

    def __init__(self, source: Answering) -> None:
        self._source = source
        self._log = structlog.stdlib.get_logger("bridge.bounds")

    def starts(self, keys: Sequence[Key], time_ns: int) -> dict[Key, int]:
        """The first offset at or after a time; negative for the beginning, where Kafka keeps no time index."""
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
        """The present ends; 0 for a partition without messages."""
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

    def partitions(self) -> list[Key]:
        """All partitions of all topics."""
        try:
            return sorted(self._source.leaders())
        except BrokerError as error:
            self._log.info("partitions unknown", reason=str(error))
            return []

    def topic_ids(self, topics: set[str]) -> dict[str, str]:
        """The ids of topics; a topic that is deleted and created again has another."""
        try:
            return self._source.topic_ids(topics) if topics else {}
        except BrokerError as error:
            self._log.info("topic ids unknown", topics=len(topics), reason=str(error))
            return {}

    def newest_ms(self, topics: set[str]) -> dict[Key, int]:
        """The newest timestamps of all partitions of some topics, other replicas' included."""
        try:
            led = [key for key, leader in self._source.leaders().items() if leader >= 0 and key[0] in topics]
            return self._source.newest_timestamps_ms([TopicPartition(*key) for key in led]) if led else {}
        except BrokerError as error:
            self._log.info("newest append times unknown", topics=len(topics), reason=str(error))
            return {}

    def committed(self, keys: Sequence[Key], topic_ids: Mapping[str, str]) -> dict[Key, int]:
        """The group's committed offsets, where it has any; none of a topic with another id."""
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
