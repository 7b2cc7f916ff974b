"""`kernelcast exporter release`: no process of the exporter has the GPU open, for a time or until it is resumed."""

import json
import os
import signal
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import eventually
from typer.testing import CliRunner

from kernelcast.exporter.command import exporter
from kernelcast.exporter.nvml import control
from kernelcast.exporter.nvml.control import ControlSocket
from kernelcast.exporter.nvml.devices import KnownGpus
from kernelcast.exporter.nvml.isolation import isolated
from kernelcast.exporter.nvml.isolation.child import WorkerProcess
from kernelcast.exporter.nvml.isolation.isolated import IsolatedSampler
from kernelcast.exporter.nvml.sampling.sampler import SamplerOptions
from kernelcast.exporter.nvml.source import NvmlSource
from kernelcast.wire.catalogue.devices import gpu as rows
from kernelcast.wire.errors import DeviceError

SECOND_NS = 10**9


class Clock:
    """Monotonic seconds that a test moves on."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


class Node:
    """Three GPUs whose device files are real files, and the exporter's source of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files = directory / "dev"
        self.files.mkdir()
        self.state = directory / "nvml.json"
        self.state.write_text(json.dumps({"gpus": ["GPU-0", "GPU-1", "GPU-2"], "files": str(self.files)}))
        self.sampler = IsolatedSampler(
            SamplerOptions(),
            timeout_seconds=20.0,
            nvml=("tests.service.exporter.nvml.nvml_child:controlled", str(self.state)),
            gpus=directory / "none",
        )
        source = NvmlSource(self.sampler, hostname="n", boot_ns=1).start()
        self.known = KnownGpus(source, lambda: True, gpus=directory / "none")
        self.control = ControlSocket(directory, self.sampler)
        self.now_ns = 10**18

    def poll(self) -> dict[str, Any]:
        """State of each GPU: 1 or 0 for up, or the reason why it is detached."""
        self.now_ns += 10 * SECOND_NS
        self.control.poll(self.now_ns)
        states: dict[str, Any] = {}
        for sample in self.known.poll(self.now_ns).samples:
            own = dict(sample.attributes)
            if sample.metric in (rows.GPU_UP, rows.GPU_DETACHED) and sample.value is not None:
                states[own["UUID"]] = own.get("reason", sample.value)
        return states

    def opened(self) -> set[str]:
        """GPUs whose device file a child of this process has open."""
        found = set()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if int((process / "stat").read_text().rpartition(")")[2].split()[1]) != os.getpid():
                    continue
                found |= {one.readlink().name for one in (process / "fd").iterdir()}
            except OSError:  # it has ended
                continue
        return found & {"GPU-0", "GPU-1", "GPU-2"}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(isolated, "time", made)
    return made


@pytest.fixture
def node(tmp_path: Path, clock: Clock) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.control.close()
    made.known.close()


def test_a_released_gpu_is_open_nowhere_and_the_others_are_read(node: Node) -> None:
    assert node.poll() == {"GPU-0": 1, "GPU-1": 1, "GPU-2": 1}
    assert node.opened() == {"GPU-0", "GPU-1", "GPU-2"}
    (released,) = node.sampler.release("1", 600)
    assert (released.uuid, node.opened()) == ("GPU-1", set())
    assert node.poll() == {"GPU-0": 1, "GPU-1": "released", "GPU-2": 1}
    assert node.opened() == {"GPU-0", "GPU-2"}
    node.sampler.change(SamplerOptions(processes=False))
    assert node.poll() == {"GPU-0": 1, "GPU-1": "released", "GPU-2": 1}
    assert node.opened() == {"GPU-0", "GPU-2"}
    assert (node.sampler.crashes, node.sampler.hangs) == (0, 0)


def test_a_gpu_is_read_again_after_its_time_or_when_it_is_resumed(node: Node, clock: Clock) -> None:
    node.poll()
    node.sampler.release("GPU-1", 600)
    node.sampler.release("2", 60)
    assert node.poll() == {"GPU-0": 1, "GPU-1": "released", "GPU-2": "released"}
    clock.ahead = 61
    assert node.poll() == {"GPU-0": 1, "GPU-1": "released", "GPU-2": 1}
    node.sampler.resume("1")
    assert node.poll() == {"GPU-0": 1, "GPU-1": 1, "GPU-2": 1}
    with pytest.raises(DeviceError, match="GPU 1 is not released"):
        node.sampler.resume("1")


def test_with_all_gpus_released_nvml_is_not_used_at_all(node: Node) -> None:
    node.poll()
    node.sampler.release("all", 600)
    starts = node.sampler.starts
    assert set(node.poll().values()) == {"released"}
    assert (node.opened(), node.sampler.starts) == (set(), starts)
    node.sampler.resume("all")
    assert set(node.poll().values()) == {1}


def test_a_process_that_is_replaced_meanwhile_leaves_the_gpu_closed(node: Node) -> None:
    node.poll()
    node.sampler.release("0", 600)
    node.poll()
    assert node.sampler._child is not None
    os.kill(node.sampler._child.pid, signal.SIGKILL)
    node.poll()
    node.sampler._retry_at = 0.0
    assert node.poll() == {"GPU-0": "released", "GPU-1": 1, "GPU-2": 1}
    assert node.opened() == {"GPU-1", "GPU-2"}


def test_an_unknown_gpu_is_refused_with_those_that_there_are(node: Node) -> None:
    node.poll()
    with pytest.raises(DeviceError, match=r"GPU 7 is not known; the exporter reads 0 \(GPU-0\), 1 \(GPU-1\)"):
        node.sampler.release("7", 1)
    assert set(node.poll().values()) == {1}


def test_a_process_that_cannot_be_ended_is_said(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.poll()
    monkeypatch.setattr(isolated, "STOP_SECONDS", 0.1)
    with monkeypatch.context() as patch:
        patch.setattr(WorkerProcess, "kill", lambda _child: None)
        patch.setattr(WorkerProcess, "stop", lambda _child: None)
        with pytest.raises(DeviceError, match=r"cannot be ended, so it may have the GPU open"):
            node.sampler.release("0", 600)


class Answering:
    """The exporter's loop on a thread: it answers the commands."""

    def __init__(self, node: Node) -> None:
        self.node, self.stop = node, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while not self.stop.wait(0.02):
            self.node.control.poll(self.node.now_ns)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_error: object) -> None:
        self.stop.set()
        self.thread.join()


def command(node: Node, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(exporter, [*arguments, "--state.directory", str(node.directory)])
    return done.exit_code, " ".join(done.output.split())


def test_the_commands_reach_the_running_exporter(node: Node) -> None:
    node.poll()
    with Answering(node):
        code, output = command(node, "release", "1", "--for", "2h")
        assert code == 0
        assert "released for 2h: GPU 1 (GPU-1, /dev/nvidia1)" in output
        assert node.opened() == set()
        assert command(node, "resume", "GPU-1")[0] == 0
        code, output = command(node, "resume", "1")
        assert code == 1
        assert "GPU 1 is not released" in output
    assert set(node.poll().values()) == {1}


@pytest.mark.parametrize("length", ["10", "0m", "8d", "soon"])
def test_a_time_that_is_none_is_refused(node: Node, length: str) -> None:
    code, output = command(node, "release", "1", "--for", length)
    assert (code, f"--for is {length}; give a number with s, m, h or d" in output) == (2, True)


def test_without_an_exporter_the_command_says_so(node: Node) -> None:
    node.control.close()
    code, output = command(node, "release", "1")
    assert code == 1
    assert "no exporter answers on" in output


def test_only_root_and_the_exporters_user_are_answered(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's mode keeps others out; the kernel's word on the user counts beside it."""
    node.poll()
    assert stat.S_IMODE((node.directory / control.NAME).stat().st_mode) == 0o600
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    monkeypatch.setattr(control, "_ROOT", 4_000_001)
    with Answering(node):
        code, output = command(node, "release", "1")
    assert code == 1
    assert "only for root and for its own user" in output
    assert set(node.poll().values()) == {1}


def test_a_client_that_says_nothing_or_nonsense_costs_no_gpu(node: Node) -> None:
    node.poll()
    with pytest.raises(Exception, match="the request is wrong"), Answering(node):
        control.ask(node.directory, {"do": "release"}, timeout_seconds=20)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.connect(str(node.directory / control.NAME))
        assert set(node.poll().values()) == {1}
    eventually(lambda: set(node.poll().values()) == {1})
