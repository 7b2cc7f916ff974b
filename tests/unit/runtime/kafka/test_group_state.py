"""A member queries the state of its group only while the coordinator answers: librdkafka would abort the process."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, TopicPartition

from kernelcast.runtime.kafka import offsets
from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.errors import BrokerError

GROUP, MEMBER = "readers", "member-1"
SETTINGS = KafkaSettings(properties={"group.protocol": "consumer"})


class FakeMember:
    """librdkafka's consumer; its coordinator answers, or not."""

    def __init__(self, asked: list[str], *, is_reachable: bool) -> None:
        self._asked, self._is_reachable = asked, is_reachable

    def committed(self, _partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        assert timeout > 0
        self._asked.append("committed")
        if not self._is_reachable:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return []

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("samples", 0)]

    def memberid(self) -> str:
        return MEMBER

    def close(self) -> None:
        """Leave nothing behind."""

    unsubscribe = close


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests that a consumer makes, in order; its group is stable."""
    requests: list[str] = []
    assignment = SimpleNamespace(topic_partitions=[TopicPartition("samples", 0)])
    members = [SimpleNamespace(member_id=MEMBER, assignment=assignment)]
    group = SimpleNamespace(state=ConsumerGroupState.STABLE, members=members)

    def describe(names: list[str], **_rest: Any) -> dict[str, Any]:
        requests.append("describe")
        return {name: SimpleNamespace(result=lambda: group) for name in names}

    monkeypatch.setattr(
        offsets, "AdminClient", lambda *_args, **_rest: SimpleNamespace(describe_consumer_groups=describe)
    )
    return requests


def member(asked: list[str], *, is_reachable: bool) -> Consumer:
    return Consumer(
        SETTINGS, group_id=GROUP, client=lambda *_args, **_rest: FakeMember(asked, is_reachable=is_reachable)
    )


def test_a_group_is_described_after_its_coordinator_has_answered(asked: list[str]) -> None:
    consumer = member(asked, is_reachable=True)
    assert consumer.settled()
    assert asked == ["committed", "describe"]
    consumer.close()


def test_a_group_without_a_coordinator_is_not_described(asked: list[str]) -> None:
    consumer = member(asked, is_reachable=False)
    with pytest.raises(BrokerError, match="asking for the group"):
        consumer.settled()
    assert asked == ["committed"]
    consumer.close()
