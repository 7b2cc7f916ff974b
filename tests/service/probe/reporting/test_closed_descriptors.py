"""A program that closes all descriptors, as one that becomes a daemon, and opens its own under the same numbers."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.service.probe_node import Node
from tests.support.waiting import LONGEST_SECONDS, eventually

SAID = "kernelcast: measured is what the program reports, source simulated; "
"""The probe's one line; whether the exporter was connected at that moment depends on when the program closed files."""
PROGRAM = """
import os, socket, sys
import kernelcast.probe

probe = kernelcast.probe.start(
    "daemon", method="manual", source="simulated", rank="0", socket_path=sys.argv[1], nvtx=False
)

def observe_until(line):
    probe.observe("kernel", 1000)
    print(line, flush=True)
    assert sys.stdin.readline().strip() == line

observe_until("connected")
os.closerange(3, 256)
pairs = [socket.socketpair() for _ in range(4)]
for one, other in pairs:
    one.send(b"there")
    other.send(b"back")
observe_until("closed")
for end, expected in [pair for one, other in pairs for pair in ((one, b"back"), (other, b"there"))]:
    end.setblocking(False)
    received = end.recv(65536)
    assert received == expected, (end.fileno(), received)
probe.observe("kernel", 1000)
kernelcast.probe.stop()
for end in [end for pair in pairs for end in pair]:
    os.fstat(end.fileno())
print("ended", flush=True)
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "probe.sock")
    yield node
    node.server.close()


def test_the_probe_leaves_the_programs_descriptors_alone_and_connects_again(node: Node) -> None:
    environ = {**os.environ, "KERNELCAST_PROBE_INTERVAL_SECONDS": "0.05"}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(node.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        for line, launches in (("connected", 1), ("closed", 2)):
            assert program.stdout.readline() == f"{line}\n"
            eventually(lambda expected=launches: node.launches() == expected)  # type: ignore[misc]
            program.stdin.write(f"{line}\n")
            program.stdin.flush()
        output, errors = program.communicate(timeout=LONGEST_SECONDS)
    assert (program.returncode, output) == (0, "ended\n")
    assert errors.startswith(SAID)
    assert errors.count("\n") == 1
    eventually(lambda: node.launches() == 3)
    eventually(lambda: node.ended() == 1)
