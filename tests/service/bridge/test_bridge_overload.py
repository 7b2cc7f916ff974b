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
RUNS, RUN_SECONDS, PAUSE_SECONDS = 4, 0.2, 1.5


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


def test_a_starved_bridge_skips_messages_that_are_too_old_and_exposes_the_newest(
    shared_kafka: Broker, tmp_path: Path
) -> None:
    make(shared_kafka, "overload", partitions=1)
    settings = {"topics": ["overload"], "mode": "replica", "ttl_seconds": TTL_SECONDS}
    writer = Writer(shared_kafka.bootstrap_servers, "overload", "busy", Faults(repeats=REPEATS), kernels=KERNELS)
    with Replicas(tmp_path, shared_kafka.bootstrap_servers, 1, max_lag_seconds=MAX_LAG_SECONDS, **settings) as replicas:
        writer.write()
        replicas.start(0)
        replicas.watch.start()
        wait_for("the first values", lambda: replicas.own(0, "kernelcast_bridge_points_total") > 0)
        process = replicas.servers[0].process
        assert process is not None
        stop(process.pid)
        for _ in range(STEPS):
            for _ in range(WRITES_PER_STEP):
                writer.write()
            time.sleep(STOPPED_SECONDS / STEPS)
        starve(process.pid)
        writer.start()
        wait_for("a jump", lambda: replicas.own(0, "kernelcast_bridge_skipped_messages_total") > 0)
        truth = writer.stop()
        wait_for("the newest values", lambda: replicas.watch.looks[0][-1].values == truth.last)
        read = replicas.own(0, "kernelcast_bridge_messages_total")
        skipped = replicas.own(0, "kernelcast_bridge_skipped_messages_total")
        assert read + skipped >= STEPS * WRITES_PER_STEP * REPEATS
        assert "messages skipped, reading was too far behind" in replicas.servers[0].tail(100_000)
        replicas.watch.stop()
    assert replicas.watch.falls() == []
