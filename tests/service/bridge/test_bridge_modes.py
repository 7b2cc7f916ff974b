"""The ways to run many bridges, and topics that come and go, on a real Kafka."""

import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.service.conftest import Broker
from tests.service.replicas import Replicas
from tests.service.servers import wait_for
from tests.service.topics import create_topics
from tests.service.writers import Faults, Fleet
from tests.support.service.partitioned import make, shown

pytestmark = pytest.mark.service
UNKEYED = {f"collector{number}": Faults(unkeyed=True) for number in range(4)}


def delete(kafka: Broker, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    client.delete_topics([topic])[topic].result()
    time.sleep(1)  # a broker says that it is done before it has forgotten the name


def test_a_topic_without_keys_is_refused_in_a_group_taken_where_it_has_one_partition_and_identical_on_replicas(
    shared_kafka: Broker, tmp_path: Path
) -> None:
    make(shared_kafka, "otlp_metrics")
    create_topics(shared_kafka.bootstrap_servers, [NewTopic("single", 1, 1)])
    folders = {mode: tmp_path / mode for mode in ("group", "replica")}
    for folder in folders.values():
        folder.mkdir()
    servers = shared_kafka.bootstrap_servers
    with (
        Fleet(servers, "otlp_metrics", UNKEYED) as fleet,
        Fleet(servers, "single", {"lone": Faults(unkeyed=True)}) as lone,
        Replicas(folders["group"], servers, 1, topics=["otlp_metrics", "single"], group_id="unkeyed") as group,
        Replicas(folders["replica"], servers, 2, topics=["otlp_metrics"], mode="replica") as identical,
    ):
        for replicas in (group, identical):
            replicas.start(*range(replicas.count))
        truth, single = fleet.stop(), lone.stop()
        for replicas in (group, identical):
            replicas.watch.start()
        wait_for(
            "both replicas the same",
            lambda: all(looks and looks[-1].values == truth.last for looks in identical.watch.looks.values()),
        )
        wait_for("the topic with one partition", lambda: shown(group, 0)[0] == set(single.last))
        assert group.own(0, "kernelcast_bridge_unkeyed_messages_total") > 0
        assert "set bridge.mode to replica" in group.servers[0].tail(100_000)


@pytest.mark.parametrize("mode", ["group", "replica"])
def test_topics_of_a_pattern_are_read_when_they_appear_vanish_and_appear_again(
    shared_kafka: Broker, tmp_path: Path, mode: str
) -> None:
    servers = shared_kafka.bootstrap_servers
    make(shared_kafka, f"{mode}.first")
    settings = {"topics": [f"^{mode}\\..*"], "mode": mode, "group_id": f"patterns-{mode}"}
    with (
        Replicas(tmp_path, servers, 1, **settings) as replicas,
        Fleet(servers, f"{mode}.first", {"early": Faults()}) as early,
    ):
        replicas.start(0)
        replicas.watch.start()
        wait_for("the first topic", lambda: len(shown(replicas, 0)[0]) == 5)
        make(shared_kafka, f"{mode}.second")
        with Fleet(servers, f"{mode}.second", {"late": Faults()}):
            wait_for("the topic made later", lambda: len(shown(replicas, 0)[0]) == 10)
        delete(shared_kafka, f"{mode}.second")
        make(shared_kafka, f"{mode}.second")
        with Fleet(servers, f"{mode}.second", {"again": Faults()}) as again:
            wait_for(
                "the topic made again", lambda: sum(name.startswith("again") for name in shown(replicas, 0)[0]) == 5, 60
            )
        wait_for("its last values", lambda: again.stop().last.items() <= replicas.watch.looks[0][-1].values.items())
        truth = early.stop()
        wait_for("the others' last values", lambda: truth.last.items() <= replicas.watch.looks[0][-1].values.items())
        wait_for("readiness", lambda: replicas.ready(0))
        assert replicas.servers[0].stop() == 0
    assert replicas.watch.falls() == []
    assert [replicas.watch.longest_gap(name) for name in truth.last] == [0] * len(truth.last)
