"""Creates the topics of a test."""

import time
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.support.waiting import LONGEST_SECONDS

POLL_SECONDS = 0.05
NOT_YET = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE)


def create_topics(bootstrap_servers: str, topics: Sequence[NewTopic]) -> None:
    """Create topics, and wait until each exists.

    A broker forwards the request to the controller, and sends it again when that connection ends before the answer:
    the second one finds the topic of the first. So a topic that exists is accepted if it is the one asked for, empty.
    The controller answers before every broker knows the topic, so its metadata may lack it for some milliseconds.
    """
    client = AdminClient({"bootstrap.servers": bootstrap_servers})
    made = client.create_topics(list(topics))
    for topic in topics:
        try:
            made[topic.topic].result(LONGEST_SECONDS)
            partitions(client, topic.topic)
        except KafkaException as error:
            existing = error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
            if not existing or partitions(client, topic.topic) != topic.num_partitions:
                raise
            if _messages(bootstrap_servers, topic):
                raise


def partitions(client: AdminClient, topic: str) -> int:
    """Number of partitions of a topic that exists, once the broker that is asked knows all of them with a leader.

    Raises:
        TimeoutError: The broker has not heard of it in time.
    """
    deadline = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < deadline:
        found = client.list_topics(topic, timeout=LONGEST_SECONDS).topics[topic]
        if found.partitions and found.error is None and all(one.leader >= 0 for one in found.partitions.values()):
            return len(found.partitions)
        time.sleep(POLL_SECONDS)
    raise TimeoutError(f"the broker does not know {topic} after {LONGEST_SECONDS:g} s")


def _messages(bootstrap_servers: str, topic: NewTopic) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "counting"})
    try:
        return sum(end(consumer, TopicPartition(topic.topic, number)) for number in range(topic.num_partitions))
    finally:
        consumer.close()


def end(consumer: Consumer, partition: TopicPartition) -> int:
    """Offset of a partition's next message; a broker may name itself as leader a moment before it is."""
    deadline = time.monotonic() + LONGEST_SECONDS
    while True:
        try:
            return int(consumer.get_watermark_offsets(partition, timeout=LONGEST_SECONDS)[1])
        except KafkaException as error:
            if error.args[0].code() not in NOT_YET or time.monotonic() > deadline:
                raise
        time.sleep(POLL_SECONDS)
