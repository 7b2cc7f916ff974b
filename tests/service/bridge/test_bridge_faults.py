"""Prometheus holds exactly the written values, whatever process dies, returns or repeats messages."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.cimpl import NewTopic
from tests.service.replicas import Replicas, Watch
from tests.service.servers import KafkaCluster, PrometheusServer, wait_for
from tests.service.topics import create_topics
from tests.service.writers import LAUNCHES, Faults, Fleet, Truth

pytestmark = pytest.mark.service

FLEET = {
    "sound": Faults(),
    "repeating": Faults(repeats=2),
    "ahead": Faults(skew_seconds=600, repeats=1),
    "behind": Faults(skew_seconds=-600, repeats=1),
    "restarting": Faults(restarts=True),
}
SESSION_SECONDS = 10
"""Longer than these brokers need to replace a coordinator (3 s and an election), as the default is with Kafka's 9 s."""
SETTINGS = {"kafka": {"properties": {"session.timeout.ms": SESSION_SECONDS * 1000, "heartbeat.interval.ms": 1000}}}
MAX_UNSEEN = 8 * 50
"""Maximum rise of a counter between the last scrape before its restart and the restart: two seconds."""
REBALANCE_SECONDS = 6.0
"""Longest rebalance on two busy cores, rewind and gate included."""


def make(cluster: KafkaCluster, topic: str, partitions: int = 4) -> None:
    stamped = {"message.timestamp.type": "LogAppendTime"}
    create_topics(cluster.bootstrap_servers, [NewTopic(topic, partitions, 3, config=stamped)])


def values(prometheus: PrometheusServer) -> dict[str, float]:
    return {labels["kernel"]: value for labels, value in prometheus.query(f"sum by (kernel) ({LAUNCHES})")}


def check_truth(prometheus: PrometheusServer, truth: Truth) -> None:
    deadline = time.monotonic() + 20
    while values(prometheus) != truth.last and time.monotonic() < deadline:
        time.sleep(0.5)
    assert values(prometheus) == truth.last
    for labels, samples in prometheus.samples(LAUNCHES):
        name, first = labels["kernel"], samples[0][1]
        unseen = MAX_UNSEEN if name.startswith("restarting") else 0
        rose = increase(prometheus, name, samples)
        assert truth.rise[name] - first - unseen - 1e-6 <= rose <= truth.rise[name] - first + 1e-6, name


def increase(prometheus: PrometheusServer, name: str, samples: Sequence[tuple[float, float]]) -> float:
    """`increase()` over exactly the time from the first sample to the last, where it extrapolates nothing."""
    first, last = samples[0][0], samples[-1][0]
    value = prometheus.scalar(f'increase({LAUNCHES}{{kernel="{name}"}}[{round((last - first) * 1000)}ms])', last)
    assert value is not None
    return value


def check_watch(watch: Watch, truth: Truth) -> None:
    assert watch.doubles() == []
    assert {name for name, _, _ in watch.falls()} <= {name for name in truth.last if name.startswith("restarting")}


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.nightly)])
def test_a_group_that_loses_leaders_and_members_shows_each_series_once_and_every_count(
    cluster: KafkaCluster, tmp_path: Path, protocol: str
) -> None:
    topic = f"kernels-{protocol}"
    make(cluster, topic)
    settings: dict[str, Any] = {"topics": [topic], "group_id": topic, "group_protocol": protocol}
    settings |= SETTINGS if protocol == "classic" else {}
    with (
        Replicas(tmp_path, cluster.bootstrap_servers, 3, **settings) as replicas,
        Fleet(cluster.bootstrap_servers, topic, FLEET) as fleet,
    ):
        replicas.start(0, 1)
        prometheus = replicas.prometheus()
        wait_for("all series", lambda: len(values(prometheus)) == 25)
        replicas.watch.start()
        fleet.restart_some()
        time.sleep(2)
        dead = cluster.coordinator(topic)
        dead.kill()
        time.sleep(4)
        replicas.start(2)
        assert replicas.servers[2].stop() == 0
        dead.start()
        time.sleep(2)
        replicas.servers[1].kill()
        time.sleep(SESSION_SECONDS + 3)
        replicas.start(1)
        truth = fleet.stop()
        check_truth(prometheus, truth)
        replicas.watch.stop()
    check_watch(replicas.watch, truth)
    assert "lost=true" not in replicas.servers[0].log.read_text()
    gaps = {name: replicas.watch.longest_gap(name) for name in truth.last}
    assert max(gaps.values()) < SESSION_SECONDS + REBALANCE_SECONDS


@pytest.mark.nightly
def test_each_replica_of_a_topic_without_keys_shows_every_series_and_every_count(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    topic = "collected"
    make(cluster, topic)
    unkeyed = {name: replace(faults, unkeyed=True) for name, faults in FLEET.items()}
    with (
        Replicas(tmp_path, cluster.bootstrap_servers, 2, topics=[topic], mode="replica") as replicas,
        Fleet(cluster.bootstrap_servers, topic, unkeyed) as fleet,
    ):
        replicas.start(0, 1)
        replicas.watch.start()
        looks = replicas.watch.looks
        wait_for("all series", lambda: all(seen and len(seen[-1].values) == 25 for seen in looks.values()))
        fleet.restart_some()
        time.sleep(2)
        dead = cluster.leader(topic, 0)
        dead.kill()
        time.sleep(5)
        dead.start()
        replicas.servers[1].kill()
        replicas.start(1)
        time.sleep(2)
        truth = fleet.stop()
        wait_for("every count", lambda: all(seen[-1].values == truth.last for seen in looks.values()))
        replicas.watch.stop()
    names = {name for name, _, _ in replicas.watch.falls()}
    assert names <= {name for name in truth.last if name.startswith("restarting")}
