"""The group rebalances at once when a member leaves, without waiting for the session's timeout."""

from collections.abc import Sequence

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.service.conftest import Broker
from tests.service.servers import wait_for
from tests.service.topics import create_topics

from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.settings.service import KafkaSettings

pytestmark = pytest.mark.service
SESSION_MILLISECONDS = "30000"
SOON_SECONDS = 10


class Member:
    """A member of a group and its assignment, which may be empty."""

    def __init__(self, settings: KafkaSettings, name: str) -> None:
        self.answers = 0
        self.partitions: set[int] = set()
        self.consumer = Consumer(settings, group_id=name)
        self.consumer.subscribe([name], self)

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.answers += 1
        self.partitions |= {each.partition for each in partitions}

    def revoked(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        assert not lost
        self.partitions -= {each.partition for each in partitions}


def read(*members: Member) -> None:
    for member in members:
        member.consumer.consume(1, 0.1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("partitions", [1, 2])
def test_a_member_that_closes_is_gone_from_the_group(shared_kafka: Broker, protocol: str, partitions: int) -> None:
    name = f"left-{protocol}-{partitions}"
    admin = AdminClient({"bootstrap.servers": shared_kafka.bootstrap_servers})
    create_topics(shared_kafka.bootstrap_servers, [NewTopic(name, partitions, 1)])
    patience = {"session.timeout.ms": SESSION_MILLISECONDS} if protocol == "classic" else {}
    settings = KafkaSettings(
        bootstrap_servers=shared_kafka.bootstrap_servers, properties={"group.protocol": protocol, **patience}
    )

    def members() -> int:
        read(stays)
        try:
            return len(admin.describe_consumer_groups([name])[name].result().members)
        except KafkaException:  # its coordinator is still loading
            return 0

    def settled() -> bool:
        read(stays, leaves)
        had = {frozenset(stays.partitions), frozenset(leaves.partitions)}
        shares = {frozenset({0}), frozenset({1} if partitions == 2 else ())}
        return members() == 2 and had == shares and (leaves.answers > 0 or leaves.consumer.settled())

    stays = Member(settings, name)
    wait_for("the first member", lambda: members() == 1 and bool(stays.partitions))
    leaves = Member(settings, name)
    wait_for("the second member", settled)

    leaves.consumer.close()

    wait_for("its absence", lambda: members() == 1, SOON_SECONDS)
    wait_for("all partitions", lambda: members() == 1 and len(stays.partitions) == partitions, SOON_SECONDS)
    assert stays.partitions == set(range(partitions))
    stays.consumer.close()
