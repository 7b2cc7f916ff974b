"""Start and end of the process that calls NVML, where the node has no process to give, or cannot end one."""

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from kernelcast.exporter.instruments import Instruments
from kernelcast.exporter.nvml.isolation import isolated
from kernelcast.exporter.nvml.isolation.call_board import CallBoard
from kernelcast.exporter.nvml.isolation.isolated import IsolatedSampler
from kernelcast.exporter.nvml.sampling.sampler import SamplerOptions
from kernelcast.wire.errors import DeviceError


class Clock:
    """Monotonic seconds that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(isolated, "time", SimpleNamespace(monotonic=lambda: self.now))


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def refuse(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    def failing(*_arguments: object, **_named: object) -> None:
        raise error

    monkeypatch.setattr(subprocess, "Popen", failing)


def sampler(directory: Path) -> IsolatedSampler:
    return IsolatedSampler(SamplerOptions(), timeout_seconds=5.0, gpus=directory)


@pytest.mark.parametrize(
    "error", [BlockingIOError(11, "Resource temporarily unavailable"), FileNotFoundError(2, "No such file")]
)
def test_a_process_that_cannot_be_started_costs_readings_and_is_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    clock = Clock(monkeypatch)
    refuse(monkeypatch, error)
    node, before, tries = sampler(tmp_path), descriptors(), []
    for _ in range(20):
        waited = clock.now >= node._retry_at
        assert node.sample(1) is None
        tries.append(waited)
        clock.now += 1.0
    assert descriptors() == before, "no descriptor is lost"
    assert node.starts == 0
    assert 2 < sum(tries) < 8, "the wait doubles"
    with pytest.raises(DeviceError, match=r"cannot be started: .*Errno"):
        node.start()


class Stuck:
    """A process that hangs in the driver: SIGKILL does not end it."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.is_killed = self.is_closed = False

    def wait(self, timeout_seconds: float) -> bool:
        self.clock.now += timeout_seconds
        return False

    def stop(self) -> None:
        """It does not read."""

    def kill(self) -> None:
        self.is_killed = True

    def close(self) -> None:
        self.is_closed = True


def test_three_processes_that_cannot_be_killed_delay_the_end_by_four_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    node, began = sampler(tmp_path), clock.now
    stuck: list[Any] = [Stuck(clock) for _ in range(3)]
    node._child, node._replaced = stuck[0], [(one, 0.0) for one in stuck[1:]]
    node.close()
    assert clock.now - began <= 2 * isolated.STOP_SECONDS
    assert all(one.is_killed and one.is_closed for one in stuck)


def test_a_call_board_without_memory_leaks_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_arguments: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("mmap.mmap", failing)
    before = descriptors()
    with pytest.raises(OSError, match="Cannot allocate"):
        CallBoard()
    assert descriptors() == before


@pytest.mark.parametrize(
    ("has_gpu", "logged"),
    [
        (True, ("warning", "no GPU metrics, although the node has an NVIDIA GPU")),
        (False, ("info", "no GPU metrics")),
    ],
)
def test_a_broken_driver_is_a_warning_and_a_metric_and_a_node_without_gpus_is_neither(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_gpu: bool,  # noqa: FBT001  a parameter
    logged: tuple[str, str],
) -> None:
    refuse(monkeypatch, FileNotFoundError(2, "No such file"))
    node = IsolatedSampler(SamplerOptions(), timeout_seconds=5.0, gpus=tmp_path, has_gpu=lambda: has_gpu)
    registry = CollectorRegistry()
    counts = Instruments(registry)
    with capture_logs() as lines, pytest.raises(DeviceError):
        node.start()
    counts.nvml(node)
    assert [(line["log_level"], line["event"]) for line in lines] == [logged]
    assert registry.get_sample_value("kernelcast_exporter_nvml_unusable") == has_gpu
