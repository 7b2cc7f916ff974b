"""Programs that end while there is no exporter leave their totals in its directory, and nothing counts twice."""

import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from tests.support.ports import free_ports
from tests.support.service.probe_node import GPU, Node
from tests.support.waiting import LONGEST_SECONDS, eventually

from kernelcast.exporter.programs.devices import DeviceResolver
from kernelcast.exporter.programs.last import left_reports
from kernelcast.exporter.programs.server import ProbeServer
from kernelcast.exporter.state import StateFile
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.probe.probe import Probe, ProbeSettings
from kernelcast.wire.frames import Bye, Counters, Frame, Hello, KernelName, KernelRow, KernelRows, Names, encode
from kernelcast.wire.frames.left import MAX_LEFT_BYTES, join_packets, left_directory
from kernelcast.wire.histogram import DurationTotals

NONCE = "0123456789abcdef"

PROGRAM = """
import sys
import kernelcast.probe

probe = kernelcast.probe.start("train", method="manual", source="simulated", rank="0", socket_path=sys.argv[1])
for line in sys.stdin:
    for _ in range(int(line)):
        probe.observe("kernel", 1000)
    print("observed", flush=True)
kernelcast.probe.stop()
"""


class Program:
    """A measured process; it ends when `end` or `kill` is called."""

    def __init__(self, path: Path, interval_seconds: float = 0.1) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "KERNELCAST_PROBE_INTERVAL_SECONDS": str(interval_seconds)},
        )

    def observe(self, launches: int) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(launches, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "observed\n"

    def end(self) -> None:
        self.process.communicate(timeout=LONGEST_SECONDS)
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class ExporterProcess:
    """`kernelcast exporter` as a process of its own, which can be started again with the same state."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "probe.sock"
        self._directory = directory
        self.start()

    def start(self) -> None:
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}/metrics"
        arguments = {
            "--probe.socket": self.path,
            "--state.directory": self._directory / "state",
            "--web.listen-address": f"127.0.0.1:{port}",
            "--interval": "0.5",
            "--kafka": "off",
            "--nvml": "off",
        }
        command = [sys.executable, "-m", "kernelcast.cli", "exporter", *map(str, sum(arguments.items(), ()))]
        with (self._directory / "log").open("a") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        eventually(lambda: bool(self._page()))

    def end(self, number: signal.Signals) -> None:
        self._process.send_signal(number)
        self._process.wait(LONGEST_SECONDS)

    def launches(self) -> float:
        found = re.findall(r"^cuda_kernel_launches_total\{.*\} (\S+)$", self._page(), re.MULTILINE)
        return sum(map(float, found))

    def left(self, outcome: str) -> float:
        name = f'kernelcast_exporter_probe_left_reports_total{{outcome="{outcome}"}}'
        (found,) = [line for line in self._page().splitlines() if line.startswith(name)]
        return float(found.rpartition(" ")[2])

    def _page(self) -> str:
        try:
            with urllib.request.urlopen(self._url, timeout=LONGEST_SECONDS) as answer:  # noqa: S310  our own page
                text: str = answer.read().decode()
                return text
        except OSError:
            return ""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_every_launch_of_a_program_that_ends_while_the_exporter_is_away_is_counted_once(
    tmp_path: Path, number: signal.Signals
) -> None:
    exporter = ExporterProcess(tmp_path)
    program = Program(exporter.path)
    program.observe(1_513)
    eventually(lambda: exporter.launches() == 1_513)
    exporter.end(number)
    program.observe(5_079)
    program.end()
    (file,) = (tmp_path / "probe.sock.left").iterdir()
    copy = shutil.copy(file, tmp_path / "copy")
    exporter.start()
    eventually(lambda: exporter.launches() == 6_592)
    eventually(lambda: not file.exists())
    shutil.copy(copy, file)
    eventually(lambda: not file.exists())
    assert exporter.left("used") == 2
    assert exporter.launches() == 6_592
    exporter.end(signal.SIGTERM)


def launches(aggregator: Aggregator) -> int:
    return sum(
        kernel.totals.launches + kernel.pending.launches
        for member in aggregator.members.values()
        for kernel in member.series.kernels.values()
    )


class Exporter:
    """The parts of an exporter that keep totals; `kill` leaves the disk as `kill -9` would."""

    def __init__(self, path: Path, state: Path) -> None:
        self.path, self._directory = path, state
        self.state = StateFile(state).open()
        self.aggregator = Aggregator(epoch_ns=1)
        self.state.load(self.aggregator)
        self.server = ProbeServer(
            path, clock=time.time_ns, registry=CollectorRegistry(), devices=DeviceResolver("node", lambda: (GPU,))
        )
        self.server.keep(self.state.final_reports, self.state.hint_receivers, self.state.outcome_log)
        self.state.after_save = self.server.saved
        self.server.start()

    def poll(self) -> int:
        for report in self.server.poll(time.time_ns()).reports:
            self.aggregator.report(report)
        return launches(self.aggregator)

    def save(self) -> None:
        list(self.aggregator.samples(time.time_ns()))
        self.state.save(self.aggregator)

    def killed(self) -> "Exporter":
        """Return an exporter that goes on with the disk as it is now."""
        copy = self._directory.with_name(f"{self._directory.name}+")
        shutil.copytree(self._directory, copy)
        self.stop()
        return Exporter(self.path, copy)

    def stop(self) -> None:
        self.server.close()
        self.state.close()

    def files(self) -> list[Path]:
        return list(Path(left_directory(str(self.path))).iterdir())


@pytest.fixture
def exporter(tmp_path: Path) -> Exporter:
    return Exporter(tmp_path / "probe.sock", tmp_path / "state")


def test_last_frames_that_came_over_the_socket_and_were_left_count_once(exporter: Exporter) -> None:
    probe = Probe(ProbeSettings("train", socket_path=str(exporter.path), interval_seconds=0.02))
    probe.start()
    probe.observe("kernel", 10)
    eventually(lambda: exporter.poll() == 1)
    probe.count("kernel", 9)
    probe.stop()
    assert len(exporter.files()) == 1
    again = exporter.killed()
    assert again.poll() == 10
    again.save()
    assert again.files() == []
    assert again.aggregator.counts.fallen == 0
    third = again.killed()
    assert third.poll() == 10
    third.stop()


def test_a_file_stays_until_the_state_on_disk_has_its_totals(exporter: Exporter) -> None:
    leave(exporter.path, Counted(5), Bye())
    again = exporter.killed()
    assert again.poll() == 5
    assert len(again.files()) == 1
    third = again.killed()
    assert third.poll() == 5
    third.save()
    assert third.files() == []
    fourth = third.killed()
    assert fourth.poll() == 5
    fourth.stop()


def test_the_file_of_a_process_whose_bye_has_come_is_removed_with_the_next_save(exporter: Exporter) -> None:
    probe = Probe(ProbeSettings("train", socket_path=str(exporter.path), interval_seconds=0.02))
    probe.start()
    probe.count("kernel", 3)
    eventually(lambda: exporter.poll() == 3)
    probe.stop()
    assert len(exporter.files()) == 1

    def removed() -> bool:
        exporter.poll()
        exporter.save()
        return not exporter.files()

    eventually(removed)
    assert exporter.poll() == 3
    exporter.stop()


def test_a_killed_program_loses_its_last_interval_at_most(exporter: Exporter) -> None:
    program = Program(exporter.path, interval_seconds=0.05)
    program.observe(10)
    eventually(lambda: exporter.poll() == 10)
    exporter.save()
    exporter.stop()
    program.observe(20)
    directory = Path(left_directory(str(exporter.path)))
    eventually(lambda: any(directory.iterdir()))
    program.observe(300)
    (file,) = directory.glob("?" * 16)
    before = file.stat().st_ino
    eventually(lambda: file.stat().st_ino != before)
    between = file.stat().st_ino
    eventually(lambda: file.stat().st_ino != between)  # a whole interval has passed since the last launch
    program.kill()
    again = Exporter(exporter.path, exporter.state.path.parent)
    assert again.poll() == 330
    again.stop()


def test_a_program_that_runs_on_is_counted_once_and_removes_its_file(exporter: Exporter) -> None:
    program = Program(exporter.path, interval_seconds=0.05)
    program.observe(10)
    eventually(lambda: exporter.poll() == 10)
    exporter.save()
    exporter.stop()
    program.observe(20)
    eventually(lambda: any(Path(left_directory(str(exporter.path))).iterdir()))
    again = Exporter(exporter.path, exporter.state.path.parent)
    eventually(lambda: again.poll() == 30)
    eventually(lambda: any(process.connected for process in again.server.processes()))
    eventually(lambda: not again.files())
    program.observe(5)
    eventually(lambda: again.poll() == 35)
    program.end()
    eventually(lambda: again.poll() == 35 and not again.server.processes())
    assert again.aggregator.counts.fallen == 0
    again.stop()


class Counted:
    """Frames of a process with some launches."""

    def __init__(self, count: int) -> None:
        totals = DurationTotals()
        totals.observe(1_000, count)
        self.frames: tuple[Frame, ...] = (
            Names((KernelName(1, "gemm"),)),
            KernelRows(0, (KernelRow(1, count, totals),)),
            Counters(0),
        )


def content(*parts: Frame | Counted, nonce: str = NONCE) -> bytes:
    frames: list[Frame] = [Hello("train", nonce, 1, os.getpid(), version="1")]
    for part in parts:
        frames += part.frames if isinstance(part, Counted) else (part,)
    return join_packets(packet for frame in frames for packet in encode(frame))


def leave(path: Path, *parts: Frame | Counted, nonce: str = NONCE) -> Path:
    file = Path(left_directory(str(path))) / nonce
    file.write_bytes(content(*parts, nonce=nonce))
    return file


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(left_reports, "SCAN_SECONDS", 0.02)
    node = Node(tmp_path / "probe.sock")
    yield node
    node.server.close()


def refused(node: Node, reason: str) -> float:
    return node.metric("kernelcast_exporter_probe_left_reports_total", outcome=reason)


def directory_of(node: Node) -> Path:
    return Path(left_directory(str(node.path)))


def test_programs_may_create_files_and_not_list_them(node: Node) -> None:
    assert stat.filemode(directory_of(node).stat().st_mode) == "drwx-wx-wt"
    node.restart()
    assert stat.filemode(directory_of(node).stat().st_mode) == "drwx-wx-wt"


def test_a_file_that_comes_while_the_exporter_runs_is_read(node: Node) -> None:
    leave(node.path, Counted(7), Bye())
    eventually(lambda: node.launches() == 7)
    eventually(lambda: node.ended() == 1)
    assert not any(directory_of(node).iterdir())


def make_link(file: Path, outside: Path) -> None:
    file.symlink_to(outside)


def make_second_link(file: Path, outside: Path) -> None:
    file.hardlink_to(outside)


def make_pipe(file: Path, _: Path) -> None:
    os.mkfifo(file)


def make_socket(file: Path, _: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(file))


def make_directory(file: Path, _: Path) -> None:
    file.mkdir()


@pytest.mark.parametrize("make", [make_link, make_second_link, make_pipe, make_socket, make_directory])
def test_what_is_no_file_of_one_name_is_removed_and_not_followed(
    node: Node, make: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(content(Counted(1_000), Bye()))
    make(directory_of(node) / NONCE, outside)
    eventually(lambda: refused(node, "file") == 1)
    eventually(lambda: not any(directory_of(node).iterdir()))
    leave(node.path, Counted(7), Bye())
    eventually(lambda: node.launches() == 7)
    assert outside.exists()


def test_a_directory_that_cannot_be_removed_is_counted_once(node: Node) -> None:
    (directory_of(node) / "full").mkdir()
    (directory_of(node) / "full" / "file").touch()
    eventually(lambda: refused(node, "file") == 1)
    for number in range(3):
        leave(node.path, Counted(2), Bye(), nonce=f"{number:016x}")
        eventually(lambda expected=2 * number + 2: node.launches() == expected)  # type: ignore[misc]
    assert refused(node, "file") == 1


@pytest.mark.parametrize("name", ["other", "x" * 255, NONCE.upper(), f"{NONCE}0", "-rf \n\x1b[2J", "\udcff"])
def test_a_file_with_a_name_that_no_process_has_is_refused(node: Node, name: str) -> None:
    (directory_of(node) / name).write_bytes(content(Counted(3), Bye()))
    eventually(lambda: refused(node, "file") == 1)
    eventually(lambda: not any(directory_of(node).iterdir()))
    assert node.launches() == 0


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\xff" * 100,
        content(Counted(3), Bye(), nonce="f" * 16),
        content(Counted(3))[:-1],
        join_packets([*encode(Hello("train", NONCE, 1, 1)), *[b"KC"] * 8]),
        join_packets(encode(Bye())),
    ],
    ids=["empty", "no-length", "nonce-of-another-process", "cut", "bad-frames", "no-hello"],
)
def test_a_file_with_bad_frames_is_refused(node: Node, bad: bytes) -> None:
    file = directory_of(node) / NONCE
    unfinished = file.with_suffix(".tmp")
    unfinished.write_bytes(bad)
    unfinished.rename(file)
    eventually(lambda: refused(node, "frames") == 1)
    eventually(lambda: not file.exists())


def test_files_beyond_the_limits_are_refused(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    with (directory_of(node) / NONCE).open("wb") as file:
        file.truncate(MAX_LEFT_BYTES + 1)
    eventually(lambda: refused(node, "size") == 1)
    node.server.close()
    one = len(content(Counted(1), Bye()))
    monkeypatch.setattr(left_reports, "MAX_ALL_BYTES", 3 * one)
    for number in range(5):
        leave(node.path, Counted(1), Bye(), nonce=f"{number:016x}")
    node.begin()
    assert node.launches() == 3
    assert refused(node, "total") == 2
    assert not any(directory_of(node).iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")
def test_one_users_files_leave_room_for_those_of_another(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.server.close()
    monkeypatch.setattr(left_reports, "MAX_ALL_BYTES", 4 * len(content(Counted(1), Bye())))
    for number in range(20):
        os.chown(leave(node.path, Counted(1), Bye(), nonce=f"{number:016x}"), 1001, 1001)
    os.chown(leave(node.path, Counted(1_000), Bye(), nonce="f" * 16), 1002, 1002)
    node.begin()
    assert node.launches() == 1_003


def test_files_of_users_who_may_not_report_are_refused(node: Node) -> None:
    node.server.close()
    node.uids = (os.getuid() + 1,)
    leave(node.path, Counted(1), Bye())
    node.begin()
    assert node.launches() == 0
    assert refused(node, "user") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")
def test_the_nonce_of_another_users_process_is_refused(node: Node) -> None:
    leave(node.path, Counted(5))
    eventually(lambda: node.launches() == 5)
    file = Path(left_directory(str(node.path))) / f"{NONCE}.tmp"
    file.write_bytes(content(Counted(9), Bye()))
    os.chown(file, 1001, 1001)
    file.rename(file.with_suffix(""))
    eventually(lambda: refused(node, "foreign") == 1)
    assert node.launches() == 5


def test_a_file_that_is_being_written_is_left_until_its_program_was_killed(node: Node) -> None:
    fresh = directory_of(node) / f"{NONCE}.tmp"
    old = directory_of(node) / f"{'f' * 16}.tmp"
    fresh.write_bytes(b"")
    old.write_bytes(b"")
    long_ago = time.time() - 2 * left_reports.UNFINISHED_SECONDS
    os.utime(old, (long_ago, long_ago))
    eventually(lambda: not old.exists())
    assert fresh.exists()


def test_a_directory_of_another_user_is_not_used(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    Path(left_directory(str(tmp_path / "probe.sock"))).symlink_to(target)
    node = Node(tmp_path / "probe.sock")
    (target / NONCE).write_bytes(content(Counted(1), Bye()))
    probe = Probe(ProbeSettings("train", socket_path=str(node.path), interval_seconds=0.02))
    probe.start()
    probe.count("kernel", 2)
    probe.stop()
    eventually(lambda: node.launches() == 2)
    node.server.close()
