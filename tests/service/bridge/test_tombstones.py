"""A tombstone on a real Kafka ends the series of its key; a restart that reads it again shows none of them either."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.service.conftest import Broker
from tests.service.replicas import Replicas
from tests.service.servers import wait_for
from tests.service.writers import Faults, Writer
from tests.support.service.partitioned import make

pytestmark = pytest.mark.service


def test_a_tombstone_ends_the_series_of_its_key_now_and_after_a_restart(shared_kafka: Broker, tmp_path: Path) -> None:
    make(shared_kafka, "tombstones")
    servers = shared_kafka.bootstrap_servers
    gone, stays = (Writer(servers, "tombstones", name, Faults()) for name in ("gone", "stays"))
    last = Producer({"bootstrap.servers": servers})
    with Replicas(tmp_path, servers, 1, topics=["tombstones"], group_id="tombstones") as replicas:

        def names() -> set[str]:
            looks = replicas.watch.looks[0]
            return {name.rpartition("-")[0] for name in looks[-1].values} if looks else set()

        for writer in (gone, stays):
            writer.write()
            assert writer._producer.flush(10) == 0
        replicas.start(0)
        replicas.watch.start()
        wait_for("both", lambda: names() == {"gone", "stays"})
        last.produce("tombstones", value=None, key=b"gone")
        assert last.flush(10) == 0
        wait_for("one", lambda: names() == {"stays"})
        assert replicas.own(0, "kernelcast_bridge_tombstones_total") == 1

        assert replicas.servers[0].stop() == 0
        seen = len(replicas.watch.looks[0])
        replicas.start(0)
        wait_for("one again", lambda: names() == {"stays"})
        assert {
            name for look in replicas.watch.looks[0][seen:] for name in look.values if name.startswith("gone")
        } == set()

        gone.write()
        assert gone._producer.flush(10) == 0
        wait_for("its return", lambda: names() == {"gone", "stays"})
