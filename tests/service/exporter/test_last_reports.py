"""A program's last report survives `kill -9` of the exporter, over a real socket and a real disk."""

import os
import shutil
import socket
import threading
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from tests.support.waiting import LONGEST_SECONDS, eventually

from kernelcast.exporter.programs.devices import DeviceResolver
from kernelcast.exporter.programs.last.final_reports import FinalReports
from kernelcast.exporter.programs.server import ProbeServer
from kernelcast.exporter.state import StateFile
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.wire.frames import Bye, Counters, Frame, Hello, KernelName, KernelRow, KernelRows, Names, encode
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Device

GPU = Device("node", "GPU-1", "0", model_name="NVIDIA A100")


class Exporter:
    """The parts of an exporter that keep totals; `kill` leaves the disk as `kill -9` would."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = StateFile(directory / "state").open()
        self.aggregator = Aggregator(epoch_ns=1)
        self.state.load(self.aggregator)
        self.server = ProbeServer(
            directory / "probe.sock",
            clock=time.time_ns,
            registry=CollectorRegistry(),
            devices=DeviceResolver("node", lambda: (GPU,)),
        )
        self.server.keep(self.state.final_reports, self.state.hint_receivers, self.state.outcome_log)
        self.state.after_save = self.server.saved
        self.server.start()

    def poll(self) -> None:
        for report in self.server.poll(time.time_ns()).reports:
            self.aggregator.report(report)

    def save(self) -> None:
        list(self.aggregator.samples(time.time_ns()))
        self.state.save(self.aggregator)

    def interval(self) -> None:
        self.poll()
        self.save()

    def kill(self) -> Path:
        """Copy the disk as it is now, then stop this exporter; returns the copy's directory."""
        copy = self.directory.with_name(f"{self.directory.name}+")
        copy.mkdir()
        shutil.copytree(self.directory / "state", copy / "state")
        self.stop()
        return copy

    def stop(self) -> None:
        self.server.close()
        self.state.close()

    def launches(self) -> int:
        return launches(self.aggregator)


def launches(aggregator: Aggregator) -> int:
    return sum(
        kernel.totals.launches + kernel.pending.launches
        for member in aggregator.members.values()
        for kernel in member.series.kernels.values()
    )


class Program:
    """A process of its own, as far as the exporter can tell."""

    def __init__(self, exporter: Exporter, nonce: str = "n1") -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(LONGEST_SECONDS)
        self.socket.connect(str(exporter.directory / "probe.sock"))
        self.nonce = nonce
        self.send(
            Hello("train", nonce, 1, os.getpid(), version="1"), Names((KernelName(1, "gemm"), KernelName(2, "a")))
        )

    def send(self, *frames: Frame) -> None:
        for frame in frames:
            for packet in encode(frame):
                self.socket.send(packet)

    def report(self, kernel: int, count: int, copies: int = 1) -> None:
        totals = DurationTotals()
        totals.observe(1_000, count)
        self.send(KernelRows(0, (KernelRow(kernel, count, totals),)), Counters(0, (("h2d", "", 8, copies, 3),)))

    def end(self) -> None:
        """Say `Bye`, and wait until the exporter has closed the connection."""
        self.send(Bye())
        while self.socket.recv(1):
            pass  # the answer to Hello
        self.socket.close()


@pytest.fixture
def exporter(tmp_path: Path) -> Exporter:
    (tmp_path / "run").mkdir()
    exporter = Exporter(tmp_path / "run")
    exporter.interval()
    return exporter


def test_the_last_report_of_a_program_that_said_bye_survives_a_kill_before_the_next_interval(
    exporter: Exporter,
) -> None:
    program = Program(exporter)
    program.report(1, 6_285)
    eventually(lambda: bool(exporter.server.processes()))
    exporter.interval()
    program.report(1, 6_300)
    program.end()
    again = Exporter(exporter.kill())
    assert again.launches() == 6_300
    again.interval()
    third = Exporter(again.kill())
    assert third.launches() == 6_300
    third.stop()


def test_polled_but_unsaved_reports_survive_too(exporter: Exporter) -> None:
    program = Program(exporter)
    program.report(1, 10)
    eventually(lambda: bool(exporter.server.processes()))
    exporter.interval()
    program.report(1, 20)
    program.report(2, 5)
    time.sleep(0.1)
    exporter.poll()  # killed in the middle of the interval
    program.report(2, 7, copies=20)
    program.end()
    again = Exporter(exporter.kill())
    assert again.launches() == 27
    (member,) = again.aggregator.members.values()
    assert member.series.counters["memcpy_operations", "h2d", ""] == 20
    again.stop()


def test_a_report_that_comes_between_poll_and_save_is_not_released_by_that_save(exporter: Exporter) -> None:
    program = Program(exporter)
    program.report(1, 10)
    eventually(lambda: bool(exporter.server.processes()))
    exporter.poll()
    program.report(1, 11)
    program.end()
    exporter.save()
    again = Exporter(exporter.kill())
    assert again.launches() == 11
    again.stop()


def test_a_living_program_that_comes_back_after_the_kill_is_counted_once(exporter: Exporter) -> None:
    program = Program(exporter)
    program.report(1, 10)
    eventually(lambda: bool(exporter.server.processes()))
    program.socket.close()
    eventually(lambda: not any(process.connected for process in exporter.server.processes()))
    time.sleep(0.3)
    again = Exporter(exporter.kill())
    assert again.launches() == 10
    back = Program(again)
    back.report(1, 12)
    eventually(lambda: bool(again.server.processes()))
    again.interval()
    back.report(1, 13)
    back.end()
    again.interval()
    assert again.launches() == 13
    again.stop()


def test_programs_that_end_together_share_a_write_and_all_survive(
    exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = [Program(exporter, f"n{number}") for number in range(100)]
    for program in programs:
        program.report(1, 3)
    syncs: list[int] = []
    original = os.fdatasync

    def counted(file: int) -> None:
        syncs.append(file)
        original(file)

    monkeypatch.setattr(os, "fdatasync", counted)
    ends = [threading.Thread(target=program.end) for program in programs]
    for end in ends:
        end.start()
    for end in ends:
        end.join(LONGEST_SECONDS)
    assert len(syncs) <= 20
    again = Exporter(exporter.kill())
    assert again.launches() == 300
    again.stop()


def test_a_program_that_runs_on_costs_no_write(exporter: Exporter) -> None:
    program = Program(exporter)
    for count in range(1, 50):
        program.report(1, count)
    eventually(lambda: bool(exporter.server.processes()))
    assert not list((exporter.directory / "state" / "final").iterdir())
    exporter.stop()
    program.socket.close()


def test_records_that_do_not_belong_to_the_state_are_left_out(exporter: Exporter) -> None:
    program = Program(exporter)
    program.report(1, 10)
    program.end()
    copy = exporter.kill()
    (copy / "state" / "exporter.state").unlink()
    again = Exporter(copy)
    assert again.launches() == 0
    again.interval()
    again.stop()
    reports = FinalReports(copy / "state").open()
    assert reports.restore(Aggregator(), 0) == 0
    reports.close()
