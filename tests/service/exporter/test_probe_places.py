"""A user with every place at the probe socket keeps no other user out; 200 processes of one user are all served."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from tests.support.waiting import LONGEST_SECONDS, Stopwatch, eventually

from kernelcast.exporter.programs import server as probe_server
from kernelcast.exporter.programs.devices import DeviceResolver
from kernelcast.exporter.programs.limits import ProbeLimits
from kernelcast.exporter.programs.process import ProbeProcess
from kernelcast.exporter.programs.server import ProbeServer
from kernelcast.exporter.programs.socket import Peer
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.wire.frames import MAX_FRAME_BYTES, Hello, Reception, decode, encode
from kernelcast.wire.identity import Device

GPU = Device("node", "GPU-1", "0")
ATTACKER_UID = 65_534

CROWD = """
import os, socket, sys
from kernelcast.wire.frames import Bye, Hello, KernelName, KernelRow, KernelRows, Names, encode
from kernelcast.wire.histogram import DurationTotals

totals = DurationTotals()
totals.observe(1000, 7)

def serve():
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.settimeout(60)
    client.connect(sys.argv[1])
    pid = os.getpid()
    named = Names((KernelName(1, "gemm"),))
    for frame in (Hello("crowd", f"n{pid}", 1, pid), named, KernelRows(0, (KernelRow(1, 7, totals),))):
        for packet in encode(frame):
            client.send(packet)
    os.read(0, 1)  # until all are connected
    for packet in encode(Bye()):
        client.send(packet)
    while client.recv(1):
        pass  # the answer to Hello

for _ in range(int(sys.argv[2])):
    if os.fork() == 0:
        code = 1
        try:
            serve()
            code = 0
        finally:
            os._exit(code)
print(sum(os.wait()[1] == 0 for _ in range(int(sys.argv[2]))))
"""


class Node:
    """The daemon's end of the socket."""

    def __init__(self, path: Path, limits: ProbeLimits | None = None) -> None:
        self.path = path
        self.registry = CollectorRegistry()
        self.aggregator = Aggregator()
        self.server = ProbeServer(
            path,
            clock=time.time_ns,
            registry=self.registry,
            devices=DeviceResolver("node", lambda: (GPU,)),
            limits=limits,
        )
        self.server.start()

    def launches(self) -> int:
        for report in self.server.poll(time.time_ns()).reports:
            self.aggregator.report(report)
        return self.aggregator.counts.launches

    def refused(self, reason: str) -> float:
        return self.registry.get_sample_value("kernelcast_exporter_probe_refused_total", {"reason": reason}) or 0.0

    def connections(self) -> float:
        return self.registry.get_sample_value("kernelcast_exporter_probe_connections") or 0.0


@contextmanager
def opened(path: Path, limits: ProbeLimits | None = None) -> Iterator[Node]:
    node = Node(path, limits)
    try:
        yield node
    finally:
        node.server.close()


def connected(node: Node, stack: ExitStack) -> socket.socket:
    client = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    client.settimeout(LONGEST_SECONDS)
    eventually(lambda: has_connected(client, node))
    return client


def has_connected(client: socket.socket, node: Node) -> bool:
    try:
        client.connect(str(node.path))
    except BlockingIOError:
        return False
    return True


def hello(client: socket.socket, nonce: str) -> None:
    for packet in encode(Hello("train", nonce, 1, os.getpid())):
        client.send(packet)


def test_a_connection_that_says_nothing_is_closed_in_time(tmp_path: Path) -> None:
    with opened(tmp_path / "probe.sock", ProbeLimits(hello_seconds=0.2)) as node, ExitStack() as stack:
        silent, speaking = connected(node, stack), connected(node, stack)
        hello(speaking, "n1")
        with Stopwatch() as took:
            refusal = decode(silent.recv(MAX_FRAME_BYTES))
            assert silent.recv(1) == b""
        assert isinstance(refusal, Reception)
        assert "hello" in refusal.refusal.lower()
        assert took.seconds < 5
        assert node.refused("hello") == 1
        assert [process.connected for process in node.server.processes()] == [True]


def test_a_program_takes_the_place_of_a_silent_connection_of_the_same_user(tmp_path: Path) -> None:
    with opened(tmp_path / "probe.sock") as node, ExitStack() as stack:
        flood = [connected(node, stack) for _ in range(400)]
        program = connected(node, stack)
        hello(program, "n1")
        eventually(lambda: bool(node.server.processes()))
        assert node.server.processes()[0].connected
        assert node.refused("displaced") >= len(flood) + 1 - ProbeLimits().connections
        assert node.connections() == ProbeLimits().connections


def test_a_user_with_every_place_gives_some_to_another_user_even_after_hello(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = {"now": ATTACKER_UID}
    monkeypatch.setattr(probe_server, "peer_of", lambda _connection: Peer(os.getpid(), users["now"]))
    with opened(tmp_path / "probe.sock", ProbeLimits(connections=8)) as node, ExitStack() as stack:
        for number in range(8):
            hello(connected(node, stack), f"attacker-{number}")
        eventually(lambda: len(node.server.processes()) == 8)
        users["now"] = 1000
        for number in range(8):
            client = connected(node, stack)
            with suppress(BrokenPipeError):  # the exporter may have closed it already
                hello(client, f"victim-{number}")
            eventually(lambda number=number: node.refused("limit") + len(victims(node)) == number + 1)  # type: ignore[misc]
        assert node.refused("limit") == 4
        assert [process.connected for process in victims(node)] == [True] * 4


@pytest.mark.skipif(os.getuid() != 0, reason="connecting as another user needs root")
def test_silent_connections_of_another_user_do_not_keep_a_crowd_of_one_user_out(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:3]:
        parent.chmod(0o755)
    with opened(tmp_path / "probe.sock") as node, ExitStack() as stack:
        os.seteuid(ATTACKER_UID)
        try:
            for _ in range(400):
                connected(node, stack)
        finally:
            os.seteuid(0)
        within_its_share = ProbeLimits().connections // 2 - 1
        assert crowd(node, within_its_share, during=lambda: None) == within_its_share
        assert node.launches() == 7 * within_its_share
        assert node.refused("limit") == 0


def test_two_hundred_processes_of_one_user_are_all_served_at_once(tmp_path: Path) -> None:
    with opened(tmp_path / "probe.sock") as node:
        served = crowd(node, 200, during=lambda: eventually(lambda: node.connections() == 200))
        assert served == 200
        assert node.launches() == 7 * 200
        assert sum(node.refused(reason) for reason in ("limit", "displaced", "hello")) == 0


def victims(node: Node) -> list[ProbeProcess]:
    return [process for process in node.server.processes() if process.process.nonce.startswith("victim")]


def crowd(node: Node, processes: int, *, during: Callable[[], None]) -> int:
    """Run processes that report, and say how many the exporter served to the end."""
    command = [sys.executable, "-c", CROWD, str(node.path), str(processes)]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        during()
        out, _ = started.communicate(timeout=LONGEST_SECONDS)
    finally:
        started.kill()
    return int(out)
