"""A bridge that has fallen too far behind jumps to the tail of a real Kafka, and no counter is ever seen to fall."""

import os
import signal
import time
from pathlib import Path

import pytest
from tests.service.conftest import Broker
from tests.service.replicas import Replicas
from tests.service.servers import wait_for
from tests.service.writers import Faults, Writer
from tests.support.service.partitioned import make

pytestmark = pytest.mark.service
TTL_SECONDS, MAX_LAG_SECONDS, STOPPED_SECONDS = 4, 6, 12
STEPS, WRITES_PER_STEP, REPEATS, KERNELS = 10, 20, 20, 400
RUNS, RUN_SECONDS, PAUSE_SECONDS = 8, 0.1, 0.9


def stop(process: int) -> None:
    os.kill(process, signal.SIGSTOP)


def starve(process: int) -> None:
    """Let a stopped process run for moments only, as one does that gets no processor; it ends up running."""
    for _ in range(RUNS):
        os.kill(process, signal.SIGCONT)
        time.sleep(RUN_SECONDS)
        stop(process)
        time.sleep(PAUSE_SECONDS)
    os.kill(process, signal.SIGCONT)


def starved(replicas: Replicas, writer: Writer) -> bool:
    """Starve the bridge while much is written, and let it read on; whether it skipped messages."""
    process = replicas.servers[0].process
    assert process is not None
    stop(process.pid)
    for _ in range(STEPS):
        for _ in range(WRITES_PER_STEP):
            writer.write()
        time.sleep(STOPPED_SECONDS / STEPS)
    starve(process.pid)
    wait_for("every message", lambda: read(replicas) + skipped(replicas) >= writer.messages)
    return skipped(replicas) > 0


def read(replicas: Replicas) -> float:
    return replicas.own(0, "kernelcast_bridge_messages_total")


def skipped(replicas: Replicas) -> float:
    return replicas.own(0, "kernelcast_bridge_skipped_messages_total")


def test_a_starved_bridge_skips_messages_that_are_too_old_and_exposes_the_newest(
    shared_kafka: Broker, tmp_path: Path
) -> None:
    """A quick machine may read everything in the moments that the bridge has: then it is starved again."""
    make(shared_kafka, "overload", partitions=1)
    settings = {"topics": ["overload"], "mode": "replica", "ttl_seconds": TTL_SECONDS}
    servers = shared_kafka.bootstrap_servers
    with (
        Writer(servers, "overload", "busy", Faults(repeats=REPEATS), kernels=KERNELS) as writer,
        Replicas(tmp_path, servers, 1, max_lag_seconds=MAX_LAG_SECONDS, **settings) as replicas,
    ):
        writer.write()
        replicas.start(0)
        replicas.watch.start()
        wait_for("the first values", lambda: replicas.own(0, "kernelcast_bridge_points_total") > 0)
        wait_for("a jump", lambda: starved(replicas, writer))
        writer.start()
        truth = writer.stop()
        wait_for("the newest values", lambda: replicas.watch.looks[0][-1].values == truth.last)
        assert read(replicas) + skipped(replicas) == writer.messages
        assert "messages skipped, reading was too far behind" in replicas.servers[0].tail(100_000)
        replicas.watch.stop()
    assert replicas.watch.falls() == []
