"""Queries for a topic that is hidden from this client, and for one that does not exist."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from kernelcast.runtime.kafka.connect import lacks_right
from kernelcast.runtime.kafka.offsets import OffsetQueries
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.errors import BrokerError


def queries(error: int | None, partitions: tuple[int, ...] = ()) -> OffsetQueries:
    reason = KafkaError(error) if error is not None else None
    found = SimpleNamespace(error=reason, partitions=dict.fromkeys(partitions))

    def list_topics(topic: str, **_rest: Any) -> Any:
        return SimpleNamespace(topics={topic: found})

    return OffsetQueries(KafkaSettings(), SimpleNamespace(list_topics=list_topics))


def test_partitions_are_in_order() -> None:
    assert [one.partition for one in queries(None, (2, 0, 1)).partitions("samples")] == [0, 1, 2]


@pytest.mark.parametrize("error", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE])
def test_a_topic_that_does_not_exist_or_is_being_created_has_no_partitions(error: int) -> None:
    assert queries(error).partitions("samples") == []


def test_a_topic_that_this_user_may_not_see_is_an_error_not_a_missing_topic() -> None:
    """A reader of orders to stop would otherwise go on without them."""
    with pytest.raises(BrokerError, match=r"samples failed: .*[Aa]uthorization") as caught:
        queries(KafkaError.TOPIC_AUTHORIZATION_FAILED).partitions("samples")
    assert lacks_right(caught.value)
