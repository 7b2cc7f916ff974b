"""Finds the partitions of topics every few seconds, for modes without a consumer group; `Bridge` calls `look`."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import structlog
from confluent_kafka import TopicPartition

from kernelcast.bridge.clock import Clock
from kernelcast.bridge.partitions.partition import Key
from kernelcast.runtime.kafka.clients import Rebalance
from kernelcast.runtime.kafka.topic_names import TopicNames
from kernelcast.wire.errors import BrokerError

LOOK_SECONDS: Final = 5.0
"""Interval between two queries for partitions."""
LOOKS_UNTIL_GONE: Final = 2
"""Queries in a row that must miss a partition: a broker that has just started may not know every topic yet."""


class Readable(Protocol):
    """The part of a Kafka consumer that is needed here."""

    def leaders(self) -> Mapping[Key, int]:
        """Return the leader of every visible partition."""

    def add(self, partitions: Sequence[TopicPartition]) -> None:
        """Start reading these as well."""

    def remove(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop reading these."""


class Discovery:
    """Reads every partition of some topics. Only the consuming thread uses it."""

    def __init__(self, source: Readable, intake: Rebalance, topics: TopicNames, *, clock: Clock) -> None:
        """Prepare; queries nothing yet.

        Args:
            source: The consumer.
            intake: Receives new and deleted partitions.
            topics: Those to read.
            clock: Schedules the queries.
        """
        self._source, self._intake, self._clock = source, intake, clock
        self._topics = topics
        self._reading: dict[Key, int] = {}
        self._due = 0.0
        self._answered = False
        self._log = structlog.stdlib.get_logger("bridge.discovery")

    def look(self) -> None:
        """Query Kafka for partitions if a query is due."""
        if self._clock.monotonic() < self._due:
            return
        try:
            there = {key for key in self._source.leaders() if key[0] in self._topics}
        except BrokerError as error:
            self._log.warning("topics unknown", reason=str(error))
        else:
            self._take(sorted(there - self._reading.keys()))
            self._drop(there)
        self._due = self._clock.monotonic() + LOOK_SECONDS

    def _take(self, new: list[Key]) -> None:
        if new or not self._answered:
            self._answered = True
            partitions = [TopicPartition(*key) for key in new]
            starts = self._intake.assigned(partitions)
            self._source.add(starts if starts is not None else partitions)
            self._reading.update(dict.fromkeys(new, 0))

    def _drop(self, there: set[Key]) -> None:
        for key in self._reading:
            self._reading[key] = 0 if key in there else self._reading[key] + 1
        gone = [key for key, missed in self._reading.items() if missed >= LOOKS_UNTIL_GONE]
        if gone:
            partitions = [TopicPartition(*key) for key in gone]
            self._source.remove(partitions)
            self._intake.revoked(partitions, lost=True)
            self._intake.assigned([])
            for key in gone:
                del self._reading[key]
