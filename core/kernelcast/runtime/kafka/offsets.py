"""Queries about topics, partitions and offsets: the part of a consumer that changes nothing and reads no partition."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from kernelcast.runtime.kafka import queries
from kernelcast.runtime.kafka.connect import broker_errors, connect
from kernelcast.runtime.settings.service import KafkaSettings

REQUEST_TIMEOUT_SECONDS: Final = 5.0
"""Of a query; a consuming thread waits for it, so it is short."""
_MISSING: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.LEADER_NOT_AVAILABLE)  # noqa: SLF001  librdkafka's local error
"""A topic does not exist, or is being created."""


class OffsetQueries:
    """Queries Kafka through the client of a consumer. Only the consumer's thread may use it.

    Args:
        settings: Settings of the connection.
        client: confluent_kafka's consumer.
    """

    def __init__(self, settings: KafkaSettings, client: Any) -> None:
        self._settings, self._client = settings, client
        self._separate_client: Any = None
        self._rebalancing = False  # inside a callback of `consume`, see `_metadata_client`
        self._has_controller: bool | None = None

    def partitions(self, topic: str, *, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS) -> list[TopicPartition]:
        """Return every partition of a topic, in order; none if the topic does not exist.

        Raises:
            BrokerError: Kafka does not answer, or does not show us the topic.
        """
        with broker_errors(f"asking for the partitions of {topic}"):
            found = self._metadata_client().list_topics(topic, timeout=timeout_seconds).topics[topic]
            if found.error is not None and found.error.code() not in _MISSING:
                raise KafkaException(found.error)
        return [] if found.error is not None else [TopicPartition(topic, number) for number in sorted(found.partitions)]

    def leaders(self, *, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS) -> dict[tuple[str, int], int]:
        """Return the leader of each partition of every visible topic; negative if it has none.

        Services ask every few seconds, so a separate client is queried: on the consumer's connection a query waits
        until a fetch without new messages ends, for `fetch.wait.max.ms` (500 ms) at the most.
        """
        with broker_errors("asking for the topics"):
            topics = self._admin().list_topics(timeout=timeout_seconds).topics
        return {
            (name, number): int(partition.leader)
            for name, topic in topics.items()
            if topic.error is None
            for number, partition in topic.partitions.items()
        }

    def watermarks(
        self, partition: TopicPartition, *, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS
    ) -> tuple[int, int]:
        """Return the low and the high watermark: the first offset kept, and the next one to be written."""
        with broker_errors(f"asking for the watermarks of {partition.topic}/{partition.partition}"):
            low, high = self._client.get_watermark_offsets(partition, timeout=timeout_seconds)
        return int(low), int(high)

    def known_high(self, partition: TopicPartition) -> int:
        """Return the high watermark of Kafka's last answer to a fetch, without a query; negative before one."""
        _, high = self._client.get_watermark_offsets(partition, cached=True)
        return int(high)

    def offsets_for_time(
        self, partitions: Sequence[TopicPartition], time_ns: int, *, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS
    ) -> list[TopicPartition]:
        """Return the first offset at or after a time, by partition.

        Returns:
            The partitions with offsets: the high watermark if no message is that young, the beginning if the broker
            keeps no time index.
        """
        found = self._offsets_at(partitions, max(0, time_ns // 1_000_000), timeout_seconds)
        return [
            partition if partition.offset >= 0 else self._offset_without_entry(partition, timeout_seconds)
            for partition in found
        ]

    def topic_ids(self, topics: Iterable[str], *, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS) -> dict[str, str]:
        """Return Kafka's ids of topics; see `queries.topic_ids`."""
        with broker_errors("asking for the topics' ids"):
            if self._has_controller is None:
                metadata = self._admin().list_topics(timeout=timeout_seconds)
                self._has_controller = metadata.controller_id in metadata.brokers
            return queries.topic_ids(self._admin(), topics, timeout_seconds) if self._has_controller else {}

    def newest_timestamps_ms(
        self, partitions: Sequence[TopicPartition], *, timeout_seconds: float = REQUEST_TIMEOUT_SECONDS
    ) -> dict[tuple[str, int], int]:
        """Return the newest timestamp in each partition; see `queries.newest_timestamps_ms`."""
        with broker_errors("asking for the newest timestamps"):
            return queries.newest_timestamps_ms(self._admin(), partitions, timeout_seconds)

    def _metadata_client(self) -> Any:
        """Return the client for queries of topics: a separate one inside a callback.

        If a client of confluent_kafka is queried for topics while its `consume` serves a callback, it loses the state
        of `consume`: the next callback, even for a log line, aborts the process (2.16.1, `CallState_get`).
        """
        return self._admin() if self._rebalancing else self._client

    def _admin(self) -> Any:
        if self._separate_client is None:
            self._separate_client = connect(AdminClient, self._settings, properties={"log_level": "0"})
        return self._separate_client

    def _offsets_at(
        self, partitions: Sequence[TopicPartition], time_ms: int, timeout_seconds: float
    ) -> list[TopicPartition]:
        asked = [TopicPartition(partition.topic, partition.partition, time_ms) for partition in partitions]
        with broker_errors("asking for offsets by time"):
            return list(self._client.offsets_for_times(asked, timeout=timeout_seconds)) if asked else []

    def _offset_without_entry(self, partition: TopicPartition, timeout_seconds: float) -> TopicPartition:
        """Return the offset of a partition for which the broker answered -1.

        The answer means "no message is that young", or "this broker has no time index". A query for time 0 shows which:
        with an index it finds the first message.
        """
        low, high = self.watermarks(partition, timeout_seconds=timeout_seconds)
        if low < high and self._offsets_at([partition], 0, timeout_seconds)[0].offset < 0:
            return TopicPartition(partition.topic, partition.partition, OFFSET_BEGINNING)
        return TopicPartition(partition.topic, partition.partition, high)
