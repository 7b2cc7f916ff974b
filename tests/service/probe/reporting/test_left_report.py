"""The file in which a process without an exporter leaves its totals, round by round."""

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelcast.probe.hints import HintContext, HintReceiver
from kernelcast.probe.outcomes import OutcomeQueue
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.reporting import left_report
from kernelcast.probe.reporting.connection import ExporterConnection
from kernelcast.probe.reporting.sender import ReportedProcess, ReportSender
from kernelcast.probe.tunables import TunableSet
from kernelcast.wire.frames import (
    MAX_FRAME_BYTES,
    Bye,
    Counters,
    DeviceClaim,
    Frame,
    Hello,
    KernelRows,
    Names,
    Status,
    VariantRows,
    decode,
)
from kernelcast.wire.frames.left import MAX_LEFT_BYTES, left_directory, split_packets

NONCE = "0123456789abcdef"


class Program:
    """A probe whose rounds a test calls; there is no exporter."""

    def __init__(self, path: Path) -> None:
        self.seconds = 100.0
        self.recorder = Recorder()
        outcomes = OutcomeQueue("training", "", lambda: 1, lambda: None)
        context = HintContext("training", "", "", lambda: "", lambda: 1)
        receiver = HintReceiver(TunableSet(), self.recorder, outcomes, context)
        subject = ReportedProcess(self.recorder, TunableSet(), outcomes, receiver)
        hello = Hello("training", NONCE, 1, 7, devices=(DeviceClaim("GPU-1"),))
        self.sender = ReportSender(subject, ExporterConnection(str(path), lambda: self.seconds), 0.05, lambda: hello)
        self.file = Path(left_directory(str(path))) / NONCE

    def frames(self) -> list[Frame]:
        return [decode(packet) for packet in split_packets(self.file.read_bytes())]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path / "probe.sock")
    yield program
    program.sender.abandon()


@pytest.fixture
def directory(program: Program) -> Path:
    program.file.parent.mkdir()
    return program.file.parent


def launches(frames: list[Frame]) -> list[int]:
    return [row.launches for frame in frames if isinstance(frame, KernelRows) for row in frame.rows]


@pytest.mark.usefixtures("directory")
def test_a_round_without_an_exporter_leaves_all_totals(program: Program) -> None:
    program.recorder.status("manual", "active")
    program.recorder.observe("a", 5, variant="1x1x1|32x1x1")
    program.sender.round()
    frames = program.frames()
    assert [type(frame) for frame in frames] == [Hello, Counters, Status, Names, KernelRows, VariantRows]
    assert launches(frames) == [1]


def test_a_file_is_replaced_once_an_interval_and_at_the_end(program: Program, directory: Path) -> None:
    program.recorder.observe("a", 5)
    program.sender.round()
    program.recorder.observe("a", 5)
    program.sender.round()
    assert launches(program.frames()) == [1]
    program.sender._wait()
    program.sender.round()
    assert launches(program.frames()) == [2]
    program.recorder.observe("a", 5)
    program.sender._send_last_frames()
    assert launches(program.frames()) == [3]
    assert program.frames()[-1] == Bye()
    assert [file.name for file in directory.iterdir()] == [NONCE]


def test_without_the_exporters_directory_nothing_is_left(program: Program) -> None:
    program.recorder.observe("a", 5)
    program.sender.round()
    program.sender._send_last_frames()
    assert not program.file.parent.exists()


@pytest.mark.usefixtures("directory")
def test_a_file_system_that_is_nearly_full_is_left_alone(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_report, "LEAST_FREE_BYTES", 2**62)
    program.recorder.observe("a", 5)
    program.sender.round()
    assert not program.file.exists()


@pytest.mark.usefixtures("directory")
def test_totals_beyond_the_limit_are_dropped_and_counted(program: Program) -> None:
    for number in range(1_800):
        program.recorder.count(f"{number} {'x' * 1000}", 2)
    program.sender.round()
    assert MAX_LEFT_BYTES // 2 < program.file.stat().st_size <= MAX_LEFT_BYTES
    assert set(launches(program.frames())) == {2}
    assert program.sender.dropped_frames == 1
    program.sender._send_last_frames()
    assert program.file.stat().st_size <= MAX_LEFT_BYTES
    assert program.frames()[-1] == Bye()


@pytest.mark.usefixtures("directory")
def test_each_file_has_the_totals_of_that_time_and_a_new_exporter_gets_all(program: Program, tmp_path: Path) -> None:
    for number in range(200):
        program.recorder.observe(f"kernel {number}", 5, block="32x1x1", variant="1x1x1|32x1x1")
    program.sender.round()
    program.recorder.observe("kernel 150", 5, block="64x1x1", variant="1x1x1|64x1x1")
    program.recorder.observe("kernel 200", 5)
    program.sender._leave()
    frames = program.frames()
    assert sum(launches(frames)) == 202
    assert sum(row.launches for frame in frames if isinstance(frame, VariantRows) for row in frame.rows) == 201
    blocks = {name.signature: name.block for frame in frames if isinstance(frame, Names) for name in frame.names}
    assert (len(blocks), blocks["kernel 149"], blocks["kernel 150"]) == (201, "32x1x1", "64x1x1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "probe.sock"))
        listener.listen()
        program.recorder.observe("kernel 3", 5)
        program.seconds += 10.0
        program.sender.round()
        exporter, _ = listener.accept()
        with exporter:
            exporter.setblocking(False)
            received = list[Frame]()
            with contextlib.suppress(BlockingIOError):
                while packet := exporter.recv(MAX_FRAME_BYTES):
                    received.append(decode(packet))
    assert sum(launches(received)) == 203
    assert not program.file.exists()


def test_the_exporter_may_read_the_file_whatever_the_programs_umask(program: Program, directory: Path) -> None:
    program.recorder.observe("a", 5)
    before = os.umask(0o777)
    try:
        program.sender.round()
    finally:
        os.umask(before)
    assert stat.S_IMODE(program.file.stat().st_mode) == 0o644
    assert directory.exists()


@pytest.mark.usefixtures("directory")
def test_a_file_that_cannot_be_written_leaves_nothing_behind(program: Program) -> None:
    program.file.mkdir()
    program.recorder.observe("a", 5)
    program.sender.round()
    assert [file.name for file in program.file.parent.iterdir()] == [NONCE]
    assert program.file.is_dir()
