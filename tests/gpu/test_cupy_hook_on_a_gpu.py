"""CuPy's launches as the probe counts and times them, on a real GPU."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kernelcast.probe.cupy.method import CupyMethod
from kernelcast.probe.recording.recorder import Recorder

SPIN = r"""
extern "C" __global__ void spin(long long cycles) {
    long long began = clock64();
    while (clock64() - began < cycles) {}
}
"""
LAUNCHES = 400
CYCLES = 400_000


@pytest.fixture
def method_used(cupy: Any) -> Iterator[tuple[CupyMethod, Recorder]]:
    recorder = Recorder()
    made = CupyMethod(recorder)
    made.sample(1.0)
    made.begin()
    yield made, recorder
    made.stop()


def settled(cupy: Any, method: CupyMethod) -> None:
    cupy.cuda.Device().synchronize()
    poll_elsewhere(method)


def poll_elsewhere(method: CupyMethod) -> None:
    """Ask for events on another thread, as the probe does."""
    polling = threading.Thread(target=method.poll)
    polling.start()
    polling.join()


def cell_of(recorder: Recorder, signature: str) -> Any:
    return next(cell for cell in recorder.cells(0) if cell.signature == signature)


def test_every_launch_is_counted_and_sampled_times_are_those_of_an_event_pair_around_all(
    cupy: Any, method_used: tuple[CupyMethod, Recorder]
) -> None:
    probe, recorder = method_used
    kernel = cupy.RawKernel(SPIN, "spin")
    kernel((1,), (64,), (CYCLES,))
    settled(cupy, probe)
    began, ended = cupy.cuda.Event(), cupy.cuda.Event()
    began.record()
    for _ in range(LAUNCHES):
        kernel((1,), (64,), (CYCLES,))
    ended.record()
    settled(cupy, probe)
    cell = cell_of(recorder, "spin")
    assert cell.launches == LAUNCHES + 1
    assert cell.durations.count > 10
    mean_ns = cell.durations.sum_ns / cell.durations.count
    each_ns = cupy.cuda.get_elapsed_time(began, ended) * 1e6 / LAUNCHES
    assert mean_ns == pytest.approx(each_ns, rel=0.25)
    name = cell.name()
    assert (name.grid, name.block) == ("1x1x1", "64x1x1")
    assert name.registers == kernel.num_regs
    assert 0 < name.occupancy <= 1


def test_elementwise_reduction_and_fused_kernels_are_seen(cupy: Any, method_used: tuple[CupyMethod, Recorder]) -> None:
    probe, recorder = method_used
    cupy.clear_memo()
    array = cupy.arange(1000, dtype=cupy.float32)
    # A plain sum runs in CUB, which CuPy has compiled: such launches are not CuPy's own, and are not seen.
    total = cupy.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "own_sum")
    # Else CuPy names the kernel after the function, and `<lambda>` does not compile.
    fused_square = cupy.fuse(kernel_name="fused_square")(lambda x: x * x + 1)
    total(array + 1)
    fused_square(array)
    settled(cupy, probe)
    names = {cell.signature for cell in recorder.cells(0)}
    assert any("add" in name for name in names), names
    assert any("own_sum" in name for name in names), names
    assert any("fused_square" in name for name in names), names
    assert len(names) >= 4


def test_a_graph_is_captured_in_global_mode_while_the_probe_asks_for_its_events(
    cupy: Any, method_used: tuple[CupyMethod, Recorder]
) -> None:
    probe, recorder = method_used
    kernel = cupy.RawKernel(SPIN, "spin")
    kernel((1,), (64,), (CYCLES,))
    settled(cupy, probe)
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            probe.poll()
            time.sleep(0.001)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        for _ in range(50):
            kernel((1,), (64,), (CYCLES,))
        stream.begin_capture(mode=cupy.cuda.runtime.streamCaptureModeGlobal)
        for _ in range(20):
            kernel((1,), (64,), (CYCLES,))
        time.sleep(0.05)
        graph = stream.end_capture()
        graph.launch()
    ended.set()
    asking.join()
    settled(cupy, probe)
    assert ("graph", 20) in recorder.counters(0, dropped_frames=0).unseen
    assert cell_of(recorder, "spin").launches == 51


def test_asking_makes_no_context_on_a_device_that_the_program_does_not_use(cupy: Any) -> None:
    """A thread's device is 0 until it chooses another: a fresh process uses the last device, or none where it is 0."""
    used = cupy.cuda.runtime.getDeviceCount() - 1
    launch = f"cupy.cuda.Device({used}).use(); cupy.RawKernel(SPIN, 'spin')((1,), (64,), (CYCLES,))" if used else ""
    program = f"""
import cupy
from tests.gpu.test_cupy_hook_on_a_gpu import CYCLES, SPIN, CupyMethod, Recorder, poll_elsewhere
from kernelcast.probe.process.driver import active_devices
method = CupyMethod(Recorder())
method.sample(1.0)
method.begin()
{launch}
poll_elsewhere(method)
print(*active_devices())
"""
    asked = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120)
    assert asked.stdout.split() == ([str(used)] if used else [])
