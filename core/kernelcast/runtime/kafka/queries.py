"""Queries through an administration client: newest timestamps, ids of topics; and ends of partitions without a wait.

`offsets.OffsetQueries` calls them on the consumer's thread.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin._listoffsets import OffsetSpec  # its package does not export it to type checkers

NO_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""Sixteen zero bytes: librdkafka's value for an id that the broker did not return."""


def topic_ids(admin: Any, topics: Iterable[str], timeout_seconds: float) -> dict[str, str]:
    """Return Kafka's ids of topics (KIP-516); a topic that is deleted and created again gets a new id.

    Topics that do not exist are absent, and all topics before Kafka 2.8 and on the embedded broker. The embedded broker
    names a controller that is not one of its brokers, for which librdkafka would wait until the time-out, so it is not
    queried.
    """
    wanted, found = sorted(set(topics)), dict[str, str]()
    answers = admin.describe_topics(TopicCollection(wanted), request_timeout=timeout_seconds) if wanted else {}
    for name, answer in answers.items():
        with suppress(KafkaException):
            topic_id = str(answer.result().topic_id)
            if topic_id != NO_TOPIC_ID:
                found[name] = topic_id
    return found


def newest_timestamps_ms(
    admin: Any, partitions: Sequence[TopicPartition], timeout_seconds: float
) -> dict[tuple[str, int], int]:
    """Return the newest timestamp in each partition; absent if it has no message, or there is no answer.

    Brokers before Kafka 3.0 (KIP-734) and librdkafka's mock cluster do not answer.
    """
    newest: Any = OffsetSpec
    asked = {TopicPartition(one.topic, one.partition): newest.max_timestamp() for one in partitions}
    found: dict[tuple[str, int], int] = {}
    answers = admin.list_offsets(asked, request_timeout=timeout_seconds) if asked else {}
    for partition, answer in answers.items():
        with suppress(KafkaException):
            timestamp_ms = int(answer.result().timestamp)
            if timestamp_ms > 0:
                found[partition.topic, partition.partition] = timestamp_ms
    return found


def ask_for_ends(admin: Any, keys: Iterable[tuple[str, int]], timeout_seconds: float) -> dict[TopicPartition, Any]:
    """Query the next offsets that a reader of committed messages gets; returns futures at once."""
    latest: Any = OffsetSpec
    asked = {TopicPartition(*key): latest.latest() for key in keys}
    level = IsolationLevel.READ_COMMITTED
    futures: dict[TopicPartition, Any] = admin.list_offsets(
        asked, isolation_level=level, request_timeout=timeout_seconds
    )
    return futures


def answered_ends(futures: Mapping[TopicPartition, Any]) -> dict[tuple[str, int], int]:
    """Return the ends that Kafka has told; librdkafka 2.16 gives -1001 for a request that has timed out."""
    ends: dict[tuple[str, int], int] = {}
    for partition, future in futures.items():
        if future.exception() is None and (offset := int(future.result().offset)) >= 0:
            ends[partition.topic, partition.partition] = offset
    return ends
