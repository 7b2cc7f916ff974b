"""Consumers whose librdkafka stops for good, although Kafka answers: they are replaced, and data flow again."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.service.replicas import Replicas
from tests.service.servers import SharedKafka, wait_for
from tests.service.topics import create_topics
from tests.service.writers import Faults, Fleet
from tests.support.service.partitioned import shown
from tests.support.waiting import LONGEST_SECONDS

pytestmark = pytest.mark.service
WRITERS = {f"host{number}": Faults() for number in range(8)}
SERIES = 5 * len(WRITERS)
STALL_SECONDS = 35.0
"""librdkafka 2.16 keeps the deleted topic's id after a stall of this length, and not after one of 20 s."""
CALM_SECONDS = 18.0
DELETED_SECONDS = 6.0
QUICK: dict[str, Any] = {"kafka": {"properties": {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}}}
BACK_SECONDS = 60.0


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[SharedKafka]:
    """A Kafka that a test may freeze."""
    server = SharedKafka(tmp_path)
    try:
        server.run()
        yield server
    finally:
        server.thaw()
        server.kill()


def make(server: SharedKafka, topic: str, partitions: int) -> None:
    stamped = {"message.timestamp.type": "LogAppendTime"}
    create_topics(server.bootstrap_servers, [NewTopic(topic, partitions, 1, config=stamped)])


def delete(server: SharedKafka, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    client.delete_topics([topic])[topic].result(LONGEST_SECONDS)


def all_shown(replicas: Replicas) -> bool:
    one, other = shown(replicas, 0, 1)
    return len(one | other) == SERIES


def test_after_a_stall_of_kafka_a_topic_that_is_made_again_is_read_by_both_replicas(
    own_kafka: SharedKafka, tmp_path: Path
) -> None:
    make(own_kafka, "remade", 8)
    settings = {"topics": ["remade"], "group_id": "remade", **QUICK}
    with Replicas(tmp_path, own_kafka.bootstrap_servers, 2, **settings) as replicas:
        with Fleet(own_kafka.bootstrap_servers, "remade", WRITERS):
            replicas.start(0, 1)
            replicas.watch.start()
            wait_for("all series", lambda: all_shown(replicas))
            own_kafka.freeze()
            time.sleep(STALL_SECONDS)
            own_kafka.thaw()
            time.sleep(CALM_SECONDS)
            wait_for("all series again", lambda: all_shown(replicas), BACK_SECONDS)
        delete(own_kafka, "remade")
        time.sleep(DELETED_SECONDS)
        wait_for("no series", lambda: shown(replicas, 0, 1) == [set(), set()])
        make(own_kafka, "remade", 4)
        with Fleet(own_kafka.bootstrap_servers, "remade", WRITERS):
            wait_for("all series of the new topic", lambda: all_shown(replicas), BACK_SECONDS)


def test_a_stranger_in_the_group_is_seen_in_the_partitions_that_nobody_exposes(
    own_kafka: SharedKafka, tmp_path: Path
) -> None:
    make(own_kafka, "shared", 3)
    settings = {"topics": ["shared"], "group_id": "shared", **QUICK}
    with Replicas(tmp_path, own_kafka.bootstrap_servers, 1, **settings) as replicas:
        replicas.start(0)
        own, partitions = replicas.own, "kernelcast_bridge_topic_partitions"
        exposed = 'kernelcast_bridge_partitions{state="exposed"}'
        wait_for("all partitions", lambda: own(0, exposed) == own(0, partitions) == 3)
        stranger = Consumer(
            {
                "bootstrap.servers": own_kafka.bootstrap_servers,
                "group.id": "shared",
                "partition.assignment.strategy": "cooperative-sticky",
            }
        )
        stranger.subscribe(["shared"])
        try:
            wait_for("a partition of its own", lambda: stranger.poll(0.2) or stranger.assignment())
            wait_for("a partition that nobody exposes", lambda: 0 < own(0, exposed) < own(0, partitions) == 3)
        finally:
            stranger.close()
