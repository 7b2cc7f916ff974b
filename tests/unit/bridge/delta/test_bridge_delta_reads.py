"""Reads of other replicas' snapshots: on another thread, one at a time."""

import threading
from collections.abc import Callable

from tests.support.bridge.list_kafka import ManualClock, StateLog

from kernelcast.bridge.delta.persistence.background import SnapshotReads, run_on_thread
from kernelcast.bridge.delta.persistence.state import StateTopic


def reading(log: StateLog, started: list[Callable[[], None]]) -> SnapshotReads:
    """Reads of one bridge, of which each that starts is noted in place of running."""
    return SnapshotReads(StateTopic("group", log, log.open), started.append)


def test_one_read_runs_at_a_time_and_its_result_is_taken_once() -> None:
    log = StateLog(ManualClock())
    started: list[Callable[[], None]] = []
    reads = reading(log, started)
    reads.begin([("kernels", 0)], {})
    reads.begin([("kernels", 1)], {})
    assert (len(started), reads.take()) == (1, None)
    started[0]()
    assert (reads.take(), reads.take()) == ({}, None)
    reads.begin([("kernels", 1)], {})
    assert len(started) == 2


def test_a_read_that_fails_gives_nothing_and_the_next_one_may_start() -> None:
    log = StateLog(ManualClock(), answers=False)
    started: list[Callable[[], None]] = []
    reads = reading(log, started)
    for _ in range(2):
        reads.begin([("kernels", 0)], {})
        started.pop()()
        assert reads.take() is None


def test_a_read_of_a_bridge_runs_on_a_thread_of_its_own() -> None:
    threads: list[threading.Thread] = []
    ended = threading.Event()

    def read() -> None:
        threads.append(threading.current_thread())
        ended.set()

    run_on_thread(read)
    assert ended.wait(10)
    assert threads[0] is not threading.current_thread()
    assert threads[0].daemon
