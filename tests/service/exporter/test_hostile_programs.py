"""Programs that send wrong or too much to the probe socket: the others, the disk and the socket go on."""

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from prometheus_client import CollectorRegistry
from tests.support.service.probe_node import GPU, Node
from tests.support.waiting import LONGEST_SECONDS, Stopwatch, eventually

from kernelcast.exporter.hints.outcome_log import OutcomeLog
from kernelcast.exporter.programs.last.final_reports import FinalReports
from kernelcast.exporter.programs.limits import ProbeLimits
from kernelcast.exporter.programs.server import ProbeServer
from kernelcast.exporter.state import StateFile
from kernelcast.wire.events import SEARCH_PREFIX, Outcome, OutcomeState, to_event
from kernelcast.wire.frames import (
    HEADER,
    MAGIC,
    PROTOCOL_VERSION,
    Bye,
    DeviceClaim,
    Frame,
    Hello,
    KernelName,
    KernelRow,
    KernelRows,
    Names,
    OutcomeFrame,
    encode,
)
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Device

BOOM = "GPU-boom"


class Program:
    """A process of its own, as far as the exporter can tell."""

    sockets: ClassVar[list[socket.socket]] = []

    def __init__(self, path: Path, nonce: str, uuid: str = "GPU-1") -> None:
        self.nonce, self.uuid = nonce, uuid
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sockets.append(self.socket)
        self.socket.settimeout(LONGEST_SECONDS)
        self.socket.connect(str(path))

    def send(self, *frames: Frame) -> None:
        for frame in frames:
            for packet in encode(frame):
                self.socket.send(packet)

    def hello(self, nonce: str = "") -> None:
        self.send(Hello("train", nonce or self.nonce, 1, os.getpid(), devices=(DeviceClaim(self.uuid),)))

    def report(self) -> None:
        totals = DurationTotals()
        totals.observe(1_000)
        self.send(Names((KernelName(1, "gemm"),)), KernelRows(0, (KernelRow(1, 1, totals),)))

    def outcome(self, interval: object) -> None:
        event = to_event(Outcome(f"{SEARCH_PREFIX}1", "", "tile", OutcomeState.KEPT), source="/probe", time_ns=1)
        event["data"]["measured_interval"] = interval
        self.socket.send(
            HEADER.pack(MAGIC, PROTOCOL_VERSION, OutcomeFrame.TYPE) + json.dumps({"event": event}).encode()
        )

    def is_closed(self) -> bool:
        """Read what the exporter sends until it closes the connection; a connection that stays open times out."""
        with contextlib.suppress(ConnectionResetError):
            while self.socket.recv(10):
                pass
        return True


@pytest.fixture(autouse=True)
def _closed_sockets() -> Iterator[None]:
    yield
    while Program.sockets:
        Program.sockets.pop().close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "probe.sock")
    yield node
    node.server.close()


def bad(registry: CollectorRegistry) -> float:
    return registry.get_sample_value("kernelcast_exporter_probe_frames_total", {"outcome": "bad"}) or 0.0


def test_outcomes_with_an_endless_number_are_bad_frames_that_close_the_connection(node: Node) -> None:
    program = Program(node.path, "n1")
    program.hello()
    for _ in range(ProbeLimits().bad_frames):
        program.outcome([0, 10**400])
    assert program.is_closed()
    assert bad(node.registry) == ProbeLimits().bad_frames
    assert node.metric("kernelcast_exporter_probe_errors_total") == 0


def test_a_program_that_causes_errors_of_the_exporter_is_closed_and_delays_no_other(tmp_path: Path) -> None:
    def resolved(claim: DeviceClaim) -> Device:
        if claim.uuid == BOOM:
            raise RuntimeError("a defect of the exporter")
        return GPU

    registry = CollectorRegistry()
    server = ProbeServer(tmp_path / "probe.sock", clock=time.time_ns, registry=registry, devices=resolved)
    server.start()
    program = Program(tmp_path / "probe.sock", "n1", BOOM)
    for _ in range(ProbeLimits().bad_frames):
        program.hello()
    other = Program(tmp_path / "probe.sock", "n2")
    other.hello()
    with Stopwatch() as took:
        eventually(lambda: bool(server.processes()))
    assert took.seconds < 0.5, "without a pause for each error"
    assert program.is_closed()
    assert bad(registry) == ProbeLimits().bad_frames
    assert registry.get_sample_value("kernelcast_exporter_probe_errors_total") == ProbeLimits().bad_frames
    server.close()


def test_a_connection_is_one_process(node: Node) -> None:
    program = Program(node.path, "n1")
    program.hello()
    program.hello()
    for number in range(ProbeLimits().bad_frames):
        program.hello(f"another {number}")
    assert program.is_closed()
    assert [one.process.nonce for one in node.server.processes()] == ["n1"]
    assert bad(node.registry) == ProbeLimits().bad_frames


@dataclass
class Disk:
    """A server with a state directory."""

    server: ProbeServer
    state: StateFile
    path: Path
    registry: CollectorRegistry


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    registry = CollectorRegistry()
    state = StateFile(tmp_path / "state").open()
    path = tmp_path / "probe.sock"
    server = ProbeServer(path, clock=time.time_ns, registry=registry, devices=lambda _claim: GPU)
    server.keep(state.final_reports, state.hint_receivers, state.outcome_log)
    server.start()
    yield Disk(server, state, path, registry)
    server.close()
    state.close()


def raising(error: Exception) -> Callable[..., object]:
    def fail(*_arguments: object) -> object:
        raise error

    return fail


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def ended(disk: Disk, nonce: str) -> None:
    """Run a program to its end: it reports, sends an outcome, says `Bye`, and its connection is closed."""
    program = Program(disk.path, nonce)
    program.hello()
    program.report()
    program.outcome(None)
    program.send(Bye())
    assert program.is_closed()
    program.socket.close()


def test_an_error_while_last_reports_are_written_leaks_nothing_and_the_reports_are_synced(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(disk, "first")
    eventually(lambda: disk.state.outcome_log.errors == 0)
    monkeypatch.setattr(OutcomeLog, "append", raising(RuntimeError("a defect of the exporter")))
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    before = descriptors()
    for number in range(5):
        ended(disk, f"n{number}")
    assert len(synced) == 5
    eventually(lambda: descriptors() <= before)


def test_no_descriptor_for_a_sync_closes_the_connections_all_the_same(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "dup", raising(OSError(24, "Too many open files")))
    ended(disk, "n1")
    assert disk.registry.get_sample_value("kernelcast_exporter_probe_errors_total") == 0
    assert list((disk.path.parent / "state" / "outcomes").glob("*.segment")), "the outcome is written, too"


def test_closing_removes_the_socket_though_the_last_write_fails(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(disk.path, "n1")
    program.hello()
    program.report()
    eventually(lambda: bool(disk.server.processes()))
    monkeypatch.setattr(FinalReports, "append", raising(RuntimeError("a defect of the exporter")))
    eventually(lambda: any(one.connected for one in disk.server.processes()))
    with pytest.raises(RuntimeError):
        disk.server.close()
    assert not disk.path.exists()
    assert program.is_closed()
