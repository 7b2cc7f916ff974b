"""Consumer groups of a real Kafka: the new protocol, and members that keep their name."""

from pathlib import Path
from typing import Any

import pytest
from tests.service.conftest import Broker
from tests.service.replicas import Replicas
from tests.service.servers import wait_for
from tests.service.writers import Faults, Fleet
from tests.support.service.partitioned import make, shown

pytestmark = pytest.mark.service
WRITERS = {f"host{number}": Faults() for number in range(8)}
SERIES = 5 * len(WRITERS)
CLASSIC: dict[str, Any] = {"kafka": {"properties": {"session.timeout.ms": 20_000, "heartbeat.interval.ms": 500}}}


def shared(replicas: Replicas) -> bool:
    """Whether two replicas have all series between them, and each has some."""
    one, other = shown(replicas, 0, 1)
    return bool(one) and bool(other) and len(one | other) == SERIES and not one & other


def test_with_the_new_protocol_series_move_with_their_partitions_and_come_back(
    shared_kafka: Broker, tmp_path: Path
) -> None:
    make(shared_kafka, "kip848")
    settings = {"topics": ["kip848"], "group_id": "kip848", "group_protocol": "consumer"}
    with (
        Fleet(shared_kafka.bootstrap_servers, "kip848", WRITERS),
        Replicas(tmp_path, shared_kafka.bootstrap_servers, 2, **settings) as replicas,
    ):
        replicas.start(0)
        replicas.watch.start()
        wait_for("all on the only one", lambda: len(shown(replicas, 0)[0]) == SERIES)
        replicas.start(1)
        wait_for("a division", lambda: shared(replicas))
        assert replicas.own(0, "kernelcast_bridge_removed_series_total") == len(shown(replicas, 1)[0])
        assert replicas.servers[1].stop() == 0
        wait_for("all on the one that is left", lambda: len(shown(replicas, 0)[0]) == SERIES)
        replicas.watch.stop()
    assert replicas.watch.doubles() == []
    assert replicas.watch.falls() == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_gets_nothing_is_ready_and_takes_over(
    shared_kafka: Broker, tmp_path: Path, protocol: str
) -> None:
    topic = f"spare-{protocol}"
    make(shared_kafka, topic, partitions=1)
    settings = {"topics": [topic], "group_id": topic, "group_protocol": protocol}
    with (
        Fleet(shared_kafka.bootstrap_servers, topic, WRITERS),
        Replicas(tmp_path, shared_kafka.bootstrap_servers, 2, **settings) as replicas,
    ):
        replicas.start(0)
        replicas.start(1)
        replicas.watch.start()
        wait_for("all on one", lambda: sorted(map(len, shown(replicas, 0, 1))) == [0, SERIES])
        owner = 0 if shown(replicas, 0)[0] else 1
        assert replicas.servers[owner].stop() == 0
        wait_for("all on the other", lambda: len(shown(replicas, 1 - owner)[0]) == SERIES)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_with_a_name_that_is_soon_back_moves_nothing(
    shared_kafka: Broker, tmp_path: Path, protocol: str
) -> None:
    topic = f"static-{protocol}"
    make(shared_kafka, topic)
    settings = {"topics": [topic], "group_id": topic, "group_protocol": protocol, "group_instance_id": "bridge-{index}"}
    settings |= CLASSIC if protocol == "classic" else {}
    with (
        Fleet(shared_kafka.bootstrap_servers, topic, WRITERS),
        Replicas(tmp_path, shared_kafka.bootstrap_servers, 2, **settings) as replicas,
    ):
        replicas.start(0, 1)
        replicas.watch.start()
        wait_for("a division", lambda: shared(replicas))
        before = shown(replicas, 0, 1)
        replicas.watch.looks[0].clear()
        changes = replicas.own(0, "kernelcast_bridge_rebalances_total")
        for killed in (False, True) if protocol == "classic" else (False,):
            if killed:
                replicas.servers[1].kill()
            else:
                assert replicas.servers[1].stop() == 0
            replicas.start(1)
            wait_for("the same division", lambda: shown(replicas, 0, 1) == before)
        assert replicas.own(0, "kernelcast_bridge_rebalances_total") == changes
        replicas.watch.stop()
    assert replicas.watch.doubles() == []
    assert replicas.watch.falls() == []
    assert {frozenset(look.values) for look in replicas.watch.looks[0]} == {frozenset(before[0])}


def test_with_the_new_protocol_a_name_that_is_still_taken_ends_the_process_with_the_reason(
    shared_kafka: Broker, tmp_path: Path
) -> None:
    make(shared_kafka, "taken")
    settings = {"topics": ["taken"], "group_id": "taken", "group_protocol": "consumer", "group_instance_id": "same"}
    with Replicas(tmp_path, shared_kafka.bootstrap_servers, 2, **settings) as replicas:
        replicas.start(0)
        replicas.servers[1].start()
        assert wait_for("its end", replicas.servers[1].poll) == 1
        assert "instance ID is still used by another member" in replicas.servers[1].tail()
        assert replicas.ready(0)
