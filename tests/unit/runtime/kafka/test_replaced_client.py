"""A consumer whose client is replaced: what the new one reads, and what the former one may still say."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition
from prometheus_client import CollectorRegistry

from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.kafka.consumer_metrics import ConsumerMetrics
from kernelcast.runtime.settings.service import KafkaSettings

KEYS = (("samples", 0), ("samples", 1))


class FakeClient:
    """librdkafka's consumer: notes what it is asked to do."""

    def __init__(self, properties: dict[str, Any], **_rest: Any) -> None:
        self.on_commit: Callable[..., None] = properties["on_commit"]
        self.reads: dict[tuple[str, int], int] = {}
        self.paused: list[tuple[str, int]] = []
        self.callbacks: dict[str, Callable[..., None]] = {}
        self.closed = False

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.reads = {(each.topic, each.partition): each.offset for each in partitions}

    incremental_assign = assign

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused = [(each.topic, each.partition) for each in partitions]

    def subscribe(self, _topics: list[str], **callbacks: Callable[..., None]) -> None:
        self.callbacks = callbacks

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(*key) for key in self.reads]

    def unsubscribe(self) -> None:
        self.reads = {}

    def close(self) -> None:
        self.closed = True


class Recorder:
    """A service's callbacks."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.events.append(("assigned", len(partitions)))

    def revoked(self, partitions: Sequence[TopicPartition], *, lost: bool) -> None:
        self.events.append(("lost" if lost else "revoked", len(partitions)))


@pytest.fixture
def clients() -> list[FakeClient]:
    """The clients that a consumer has made."""
    return []


def consumer(clients: list[FakeClient], metrics: ConsumerMetrics | None = None, **properties: str) -> Consumer:
    def make(*arguments: Any, **named: Any) -> FakeClient:
        clients.append(FakeClient(*arguments, **named))
        return clients[-1]

    return Consumer(KafkaSettings(properties=properties), group_id="readers", client=make, metrics=metrics)


def partitions(offset: int = 5) -> list[TopicPartition]:
    return [TopicPartition(*key, offset) for key in KEYS]


def test_without_a_group_the_new_client_goes_on_at_the_same_positions(clients: list[FakeClient]) -> None:
    reader = consumer(clients)
    reader.assign(partitions())
    reader._note_progress(KEYS[0], 9)
    reader.pause(partitions()[1:])
    reader._replace_client()
    former, new = clients
    assert former.closed
    assert new.reads == {KEYS[0]: 9, KEYS[1]: 5}
    assert new.paused == [KEYS[1]]
    reader.close()


def test_in_a_group_partitions_are_given_up_and_the_former_client_is_heard_no_more(clients: list[FakeClient]) -> None:
    member, service = consumer(clients), Recorder()
    member.subscribe(["samples"], service)
    clients[0].callbacks["on_assign"](None, partitions())
    member._replace_client()
    former, new = clients
    former.callbacks["on_revoke"](None, partitions())
    assert former.closed
    assert service.events == [("assigned", 2), ("revoked", 2)]
    assert not member.settled()
    new.callbacks["on_assign"](None, partitions()[:1])
    assert service.events[2:] == [("assigned", 1)]
    assert member.settled()
    member.close()


def test_a_member_is_settled_by_its_assignment_and_doubted_after_a_refused_commit(clients: list[FakeClient]) -> None:
    member = consumer(clients)
    assert not member.settled()
    member.subscribe(["samples"])
    (client,) = clients
    client.on_commit(None, [])
    assert not member.settled()  # its commit was sent before
    client.callbacks["on_assign"](None, [])
    assert member.settled()
    client.on_commit(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), [])
    assert member.settled()
    client.on_commit(KafkaError(KafkaError.UNKNOWN_MEMBER_ID), [])
    assert not member.settled()
    client.on_commit(None, [])
    assert member.settled()
    member.close()


def test_a_failed_partition_is_shown_until_it_is_read_or_given_up(clients: list[FakeClient]) -> None:
    registry = CollectorRegistry()
    reader = consumer(clients, ConsumerMetrics(registry))

    def failed() -> float | None:
        return registry.get_sample_value("kernelcast_consumer_failed_partitions", {"topic": "samples"})

    reader.assign(partitions())
    assert failed() == 0
    for key in KEYS:
        reader._detector.progress[key].still_seconds = 1000.0
        reader._detector.progress[key].end = 100
        reader._detector.progress[key].sought = True
    reader._detector._replaced_seconds, reader._detector._pause_seconds = 0.0, float("inf")
    reader._recover()
    assert failed() == 2
    reader._note_progress(KEYS[0], 6)
    assert failed() == 1
    reader.assign([])
    assert failed() == 0
    reader.close()
