"""The partitions and messages of a topic are counted once the broker that is asked knows and leads them."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from tests.service.topics import end, partitions


class LateBroker:
    """Knows a new topic from the third question on, with its leaders from the fourth; a double of the admin client."""

    def __init__(self) -> None:
        self.asked = 0

    def list_topics(self, topic: str, timeout: float) -> Any:
        """Metadata of the topic as the broker knows it at this question."""
        assert timeout > 0
        self.asked += 1
        leader = 1 if self.asked > 3 else -1
        known = {number: SimpleNamespace(leader=leader) for number in range(2)} if self.asked > 2 else {}
        error = None if known else "UNKNOWN_TOPIC_OR_PART"
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=known, error=error)})


def test_a_topic_that_the_broker_does_not_know_yet_is_asked_for_again() -> None:
    broker = LateBroker()
    assert partitions(broker, "new") == 2  # type: ignore[arg-type]
    assert broker.asked == 4


class LateLeader:
    """Refuses the first questions for offsets with an error; a double of the consumer."""

    def __init__(self, *refusals: int) -> None:
        self.refusals = list(refusals)

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:
        """Offsets of a partition with three messages."""
        assert (partition.partition, timeout > 0) == (1, True)
        if self.refusals:
            raise KafkaException(KafkaError(self.refusals.pop(0)))
        return 2, 5


def test_a_broker_that_does_not_lead_a_partition_yet_is_asked_again_for_its_offsets() -> None:
    late = LateLeader(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
    assert end(late, TopicPartition("new", 1)) == 5  # type: ignore[arg-type]
    with pytest.raises(KafkaException):
        end(LateLeader(KafkaError.TOPIC_AUTHORIZATION_FAILED), TopicPartition("new", 1))  # type: ignore[arg-type]
