"""NVML in a process of its own: real child processes, which hang, crash and lose their driver."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from tests.support.waiting import LONGEST_SECONDS, Stopwatch, eventually

from kernelcast.exporter.instruments import Instruments
from kernelcast.exporter.nvml.isolation import isolated
from kernelcast.exporter.nvml.isolation.call_board import CallBoard, NotedNvml
from kernelcast.exporter.nvml.isolation.child import WorkerProcess
from kernelcast.exporter.nvml.isolation.frames import MessageAssembler, send
from kernelcast.exporter.nvml.isolation.isolated import IsolatedSampler
from kernelcast.exporter.nvml.isolation.xid_memory import XidMemory
from kernelcast.exporter.nvml.sampling.reading import GpuReading, NodeReading, XidTotal
from kernelcast.exporter.nvml.sampling.sampler import SamplerOptions
from kernelcast.wire.catalogue import exporter as rows
from kernelcast.wire.catalogue.devices import device, health
from kernelcast.wire.errors import DeviceError

POWER = device.POWER_USAGE.otlp_name
SECOND_NS = 10**9


class Node:
    """A node whose NVML a test commands, and the sampler that looks at it."""

    def __init__(self, directory: Path, *, timeout_seconds: float = 10.0) -> None:
        self.file = directory / "nvml.json"
        self.listed = directory / "gpus"
        self.listed.mkdir()
        self.now_ns = 0
        self.tell(gpus=["GPU-1", "GPU-2"])
        self.sampler = IsolatedSampler(
            SamplerOptions(),
            timeout_seconds=timeout_seconds,
            nvml=("tests.service.exporter.nvml.nvml_child:controlled", str(self.file)),
            gpus=self.listed,
        )

    def tell(self, **state: object) -> None:
        """NVML's behaviour from now on; the file is replaced as a whole, because the child may be reading it."""
        beside = self.file.with_suffix(".new")
        beside.write_text(json.dumps({"gpus": ["GPU-1", "GPU-2"], **state}))
        beside.replace(self.file)

    def sample(self) -> NodeReading | None:
        self.now_ns += 10 * SECOND_NS
        return self.sampler.sample(self.now_ns)

    def until(self, what: Callable[[NodeReading | None], bool]) -> NodeReading | None:
        """Sample until a reading is as wanted."""
        deadline = time.monotonic() + LONGEST_SECONDS
        while not what(reading := self.sample()):
            assert time.monotonic() < deadline, reading
            time.sleep(0.01)
        return reading

    def alive(self) -> NodeReading:
        """The next reading in which the driver answers."""
        reading = self.until(lambda reading: reading is not None and not reading.missing)
        assert reading is not None
        return reading

    @property
    def pid(self) -> int:
        assert self.sampler._child is not None
        return self.sampler._child.pid


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are replaced without delay."""
    monkeypatch.setattr(isolated, "FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(isolated, "LONGEST_RETRY_SECONDS", 0.02)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.sampler.close()


def gone(pid: int) -> bool:
    """Whether a process is no more, or only waits to be looked at by its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_the_gpus_are_read_by_another_process(node: Node) -> None:
    node.sampler.start()
    assert [gpu.uuid for gpu in node.sampler.found()] == ["GPU-1", "GPU-2"]
    reading = node.sample()
    assert reading is not None
    assert (reading.time_ns, reading.driver_version) == (node.now_ns, "1")
    assert [gpu.values[POWER] for gpu in reading.gpus] == [100, 100]
    assert node.pid != os.getpid()
    assert (node.sampler.starts, node.sampler.crashes, node.sampler.hangs) == (1, 0, 0)


def test_checked_places_can_change_while_it_runs(node: Node) -> None:
    node.sampler.start()
    node.sampler.change(SamplerOptions(rows=(device.GPU_TEMP.otlp_name,)))
    reading = node.sample()
    assert reading is not None
    asked = {name for gpu in reading.gpus for name in (*gpu.values, *gpu.absent)}
    assert asked - {row.otlp_name for row in health.ROWS} == {device.GPU_TEMP.otlp_name}
    assert node.sampler.starts == 1


def test_a_hanging_call_costs_its_time_limit_and_is_named_and_another_process_continues(tmp_path: Path) -> None:
    node = Node(tmp_path, timeout_seconds=1.0)
    try:
        node.alive()
        hanging = node.pid
        node.tell(hang="nvmlDeviceGetPowerUsage")
        began = time.monotonic()
        with Stopwatch() as took:
            assert node.sample() is None
        assert time.monotonic() - began > 0.9
        assert took.seconds < 5
        assert (node.sampler.hangs, node.sampler.hanging) == (1, "nvmlDeviceGetPowerUsage")
        eventually(lambda: gone(hanging))
        node.tell(watts=200)
        assert node.alive().gpus[0].values[POWER] == 200
        assert node.sampler.hanging is None
    finally:
        node.sampler.close()


def test_the_time_limit_can_change_while_it_runs(node: Node) -> None:
    node.alive()
    node.tell(hang="nvmlDeviceGetPowerUsage")
    node.sampler.timeout_seconds = 0.5
    with Stopwatch() as took:
        assert node.sample() is None
    assert took.seconds < 5, "the limit was 10 seconds"
    assert node.sampler.hangs == 1


def test_while_a_process_that_hangs_cannot_be_killed_few_others_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, timeout_seconds=0.5)
    try:
        node.alive()
        with monkeypatch.context() as patch:
            # As in state D: the kernel does not act on the signal.
            patch.setattr(WorkerProcess, "kill", lambda _child: None)
            patch.setattr(WorkerProcess, "stop", lambda _child: None)
            node.tell(hang="nvmlDeviceGetPowerUsage")
            node.until(lambda _reading: node.sampler.hangs >= isolated.MAX_HUNG)
            for _ in range(5):
                time.sleep(0.03)
                assert node.sample() is None
            assert node.sampler.starts == isolated.MAX_HUNG
        node.tell()
        node.sampler._replaced = [(child, 0.0) for child, _ in node.sampler._replaced]
        assert node.alive().gpus
    finally:
        node.sampler.close()


def test_a_crash_in_the_library_is_counted_and_costs_one_process(node: Node) -> None:
    node.alive()
    node.tell(crash="nvmlDeviceGetPowerUsage")
    assert node.sample() is None
    assert node.sampler.crashes == 1
    node.tell()
    assert len(node.alive().gpus) == 2


def test_a_process_that_was_killed_between_two_samples_is_replaced(node: Node) -> None:
    node.alive()
    os.kill(node.pid, signal.SIGKILL)
    node.alive()
    assert (node.sampler.crashes, node.sampler.starts) == (1, 2)


def test_a_new_driver_is_loaded_by_a_new_process(node: Node) -> None:
    first = node.alive()
    node.tell(driver=False)
    lost = node.sample()
    assert lost is not None
    assert set(lost.missing) == {"GPU-1", "GPU-2"}
    node.until(lambda _reading: bool(node.sampler.trouble))
    node.tell(version="2")
    assert (first.driver_version, node.alive().driver_version) == ("1", "2")
    assert node.sampler.trouble == ""
    assert node.sampler.crashes == 0


def test_a_driver_that_comes_after_the_exporter_is_found(node: Node) -> None:
    node.tell(driver=False)
    with pytest.raises(DeviceError, match="install the NVIDIA driver"):
        node.sampler.start()
    assert node.sample() is None
    node.tell()
    assert len(node.alive().gpus) == 2


def test_looking_for_a_driver_becomes_rare(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "LONGEST_RETRY_SECONDS", 300.0)
    node.tell(driver=False)
    waits = []
    for _ in range(4):
        node.sampler._retry_at = 0.0
        node.until(lambda _reading: node.sampler._child is None)
        waits.append(node.sampler._wait_seconds)
    assert waits == pytest.approx([0.02, 0.04, 0.08, 0.16])


def test_one_gpu_off_the_bus_leaves_the_others_and_the_process(node: Node) -> None:
    node.alive()
    pid = node.pid
    node.tell(gpus=["GPU-1"])
    reading = node.sample()
    assert reading is not None
    assert reading.missing == ("GPU-2",)
    assert node.pid == pid
    assert next(gpu for gpu in reading.gpus if gpu.uuid == "GPU-1").values[POWER] == 100


def test_a_gpu_that_is_plugged_in_is_found_by_a_new_process(node: Node) -> None:
    node.alive()
    node.tell(gpus=["GPU-1", "GPU-2", "GPU-3"])
    reading = node.sample()
    assert reading is not None
    assert len(reading.gpus) == 2, "NVML lists the GPUs that were present when it was started"
    (node.listed / "0000:41:00.0").mkdir()
    node.until(lambda reading: reading is not None and len(reading.gpus) == 3)
    assert node.sampler.crashes == 0


def test_a_library_that_prints_does_not_spoil_the_answers(node: Node) -> None:
    node.tell(chatter=True)
    assert len(node.alive().gpus) == 2


def test_the_process_ends_with_the_sampler_and_outlives_a_signal_to_the_whole_group(node: Node) -> None:
    node.alive()
    pid = node.pid
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(pid, number)
    assert node.sample() is not None, "an exporter that stops takes one sample more"
    node.sampler.close()
    assert gone(pid)
    node.sampler.close()


EXPORTER = """
import sys
from kernelcast.exporter.nvml.isolation.isolated import IsolatedSampler
from kernelcast.exporter.nvml.sampling.sampler import SamplerOptions

sampler = IsolatedSampler(SamplerOptions(), timeout_seconds=60, nvml=sys.argv[1:3])
sampler.start()
print(sampler._child.pid, flush=True)
while True:
    sampler.sample(1)
"""


def test_the_process_ends_when_the_exporter_is_killed_even_while_a_call_hangs(node: Node) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", EXPORTER, "tests.service.exporter.nvml.nvml_child:controlled", str(node.file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as exporter:
        assert exporter.stdout is not None
        pid = int(exporter.stdout.readline())
        node.tell(hang="nvmlDeviceGetPowerUsage")
        time.sleep(0.3)
        assert not gone(pid)
        exporter.kill()
    eventually(lambda: gone(pid))


def test_the_processes_metrics_follow(node: Node) -> None:
    registry = CollectorRegistry()
    counts = Instruments(registry)
    node.sampler.starts, node.sampler.crashes, node.sampler.hangs, node.sampler.hanging = 3, 1, 2, "nvmlInit"
    counts.nvml(node.sampler)
    shown = [
        registry.get_sample_value(row.prometheus_name) for row in (rows.NVML_STARTS, rows.NVML_CRASHES, rows.NVML_HANGS)
    ]
    assert shown == [3, 1, 2]
    assert registry.get_sample_value(rows.NVML_HUNG.prometheus_name, {"call": "nvmlInit"}) == 1
    node.sampler.hanging = None
    counts.nvml(node.sampler)
    assert registry.get_sample_value(rows.NVML_HUNG.prometheus_name, {"call": "nvmlInit"}) is None


def test_the_process_needs_none_of_the_daemons_libraries() -> None:
    program = "import sys, kernelcast.exporter.nvml.worker, pynvml; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    heavy = {"numpy", "numba", "pydantic", "confluent_kafka", "prometheus_client", "structlog", "asyncio"}
    assert not heavy & set(done.stdout.split())


@pytest.mark.parametrize("end", ["hang", "crash"])
def test_the_xid_that_a_process_saw_before_it_hung_or_crashed_is_counted(end: str, tmp_path: Path) -> None:
    """GPU-2 falls off the bus, so the next process does not list it."""
    node = Node(tmp_path, timeout_seconds=1.0)
    try:
        node.tell(xids=[("GPU-1", 31)])
        node.until(lambda reading: reading is not None and _counts(reading) == [("GPU-1", 31, 1)])
        counted = [("GPU-1", 31, 2), ("GPU-2", 79, 1)]
        seen = [("GPU-1", 31), ("GPU-2", 79), ("GPU-1", 31)]
        node.tell(hang="nvmlDeviceGetPowerUsage", xids=seen)
        assert node.sampler._child is not None
        child = node.sampler._child
        eventually(lambda: sorted((uuid, one.xid, one.count) for uuid, one in child.xids) == counted)
        if end == "crash":
            node.tell(crash="nvmlDeviceGetPowerUsage", xids=seen)
        assert node.sample() is None
        node.tell(gpus=["GPU-1"])
        node.until(lambda reading: reading is not None)
        reading = node.sample()
        assert reading is not None
        assert _counts(reading) == counted
        assert reading.missing == ("GPU-2",)
        assert (node.sampler.hangs, node.sampler.crashes) == ((1, 0) if end == "hang" else (0, 1))
    finally:
        node.sampler.close()


def _counts(reading: NodeReading) -> list[tuple[str, int, int]]:
    return [(gpu.uuid, one.xid, one.count) for gpu in reading.gpus for one in gpu.xids]


def test_xids_are_counted_on_when_the_process_is_replaced() -> None:
    gpu = GpuReading("GPU-1", "0")
    memory = XidMemory()

    def counted(*xids: XidTotal) -> tuple[XidTotal, ...]:
        (complete,) = memory.complete(NodeReading(1, gpus=(replace(gpu, xids=xids),))).gpus
        return complete.xids

    assert counted(XidTotal(79, 2, 5)) == (XidTotal(79, 0, 5),)
    assert counted(XidTotal(79, 2, 5)) == (XidTotal(79, 2, 5),)
    memory.restart()
    assert counted() == (XidTotal(79, 2, 5),)
    assert counted(XidTotal(79, 1, 9), XidTotal(48, 1, 8)) == (XidTotal(48, 0, 8), XidTotal(79, 3, 9))
    memory.restart()
    memory.restart()
    assert counted(XidTotal(79, 1, 11)) == (XidTotal(48, 1, 8), XidTotal(79, 4, 11))


def test_the_xid_with_which_the_only_gpu_fell_off_the_bus_is_counted_although_no_process_lists_it_again() -> None:
    """The process is replaced after the reading in which all GPUs are gone, and the next one finds none."""
    power = {POWER: 100.0}
    memory = XidMemory()
    memory.complete(NodeReading(1, gpus=(GpuReading("GPU-1", "0", values=power),)))
    lost = GpuReading("GPU-1", "0", absent={POWER: "lost"}, xids=(XidTotal(79, 1, 5),))
    first = memory.complete(NodeReading(2, gpus=(lost,), missing=("GPU-1",)))
    assert first.gpus == (replace(lost, xids=(XidTotal(79, 0, 5),)),)
    memory.restart()
    for _ in range(2):
        later = memory.complete(NodeReading(3))
        assert (later.gpus, later.missing) == ((lost,), ("GPU-1",))
    back = memory.complete(NodeReading(4, gpus=(GpuReading("GPU-1", "0", values=power),)))
    assert (back.gpus, back.missing) == ((GpuReading("GPU-1", "0", values=power, xids=lost.xids),), ())


def test_a_gpu_that_a_new_process_does_not_list_has_lost_its_values() -> None:
    memory = XidMemory()
    memory.complete(NodeReading(1, gpus=(GpuReading("GPU-1", "0", values={POWER: 100.0}, xids=(XidTotal(31, 1, 5),)),)))
    memory.restart()
    assert memory.complete(NodeReading(2)).gpus == (
        GpuReading("GPU-1", "0", absent={POWER: "lost"}, xids=(XidTotal(31, 1, 5),)),
    )


def test_calls_of_other_threads_are_not_noted() -> None:
    board = CallBoard()
    seen: list[str] = []

    class Module:
        """Calls that look at the board."""

        @staticmethod
        def nvmlInit() -> None:  # noqa: N802  pynvml's name
            seen.append(board.call)

    noted = NotedNvml(Module, board)
    noted.nvmlInit()
    thread = threading.Thread(target=noted.nvmlInit)
    thread.start()
    thread.join()
    assert (seen, board.call) == (["nvmlInit", ""], "")
    board.close()
    board.close()


def test_a_message_is_whole_however_it_is_cut() -> None:
    reading, writing = os.pipe()
    inbox = MessageAssembler(reading)
    sent: list[dict[str, object]] = [{"a": [1, 2.5, "ü"]}, {}, {"b": "x" * 1000}]
    for message in sent:
        send(writing, message)
    data = os.read(reading, 10_000)
    got: list[dict[str, object]] = []
    for at in range(len(data)):
        os.write(writing, data[at : at + 1])
        assert inbox.read()
        while (whole := inbox.next_message()) is not None:
            got.append(whole)
    assert got == sent
    os.write(writing, b"\xff\xff\xff\xff")
    inbox.read()
    with pytest.raises(ValueError, match="at most"):
        inbox.next_message()
    os.close(writing)
    assert not inbox.read()
    os.close(reading)
