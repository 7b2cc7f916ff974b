"""Clocks that schedules set: Unix time moves while a process runs, and librdkafka's waits last as long as before."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.faults.real.skewed_clock import SkewedClock, build
from tests.service.require import binary

pytestmark = pytest.mark.service
PROGRAM = """
import sys, time
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
for line in sys.stdin:
    began, used = time.monotonic(), time.process_time()
    consumer.poll(0.5)
    print(time.time() - float(line), time.monotonic() - began, time.process_time() - used, flush=True)
"""
HOUR_SECONDS = 3600.0


def asked(process: "subprocess.Popen[str]") -> list[float]:
    """Seconds by which its clock is ahead, and the real and processor time of its wait of half a second."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{time.time()}\n")
    process.stdin.flush()
    return [float(part) for part in process.stdout.readline().split()]


@pytest.mark.parametrize("ahead_seconds", [HOUR_SECONDS, -HOUR_SECONDS])
def test_unix_time_moves_and_waits_do_not(ahead_seconds: float, tmp_path: Path) -> None:
    binary("cc", "gcc")
    clock = SkewedClock(tmp_path / "clock", build(tmp_path))
    environ = {**os.environ, **clock.environ}
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, text=True) as process:
        assert abs(asked(process)[0]) < HOUR_SECONDS / 2
        clock.set(ahead_seconds)
        offset_seconds, took_seconds, used_seconds = asked(process)
        process.kill()
    assert abs(offset_seconds - ahead_seconds) < HOUR_SECONDS / 2
    assert 0.4 < took_seconds < HOUR_SECONDS / 2
    assert used_seconds < 0.25
