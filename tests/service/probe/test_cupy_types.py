"""The adapter and the hook of CuPy with CuPy's own types, which can be made without a GPU; nothing is launched."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.service.packages import CUPY, folder_with

pytestmark = pytest.mark.service

ROOT = Path(__file__).parents[3]

TUNED = """
import cupy
from cupy.cuda import MemoryPointer, UnownedMemory
from kernelcast import probe
from kernelcast.probe.tuned import shapes

now, launched = [0.0], []

class Stream:
    ptr = 0
    def synchronize(self):
        pass

class RawKernel:
    def __init__(self, code, name, options=()):
        self.attributes = {"num_regs": 8}
    def __call__(self, grid, block, arguments, *, shared_mem=0):
        launched.append(block[0])
        now[0] += 1e-3 * (1 + abs(block[0] - 64) / 64)

# What asks the driver; the arrays, their devices, types and numbers are CuPy's own.
cupy.RawKernel = RawKernel
cupy.cuda.get_current_stream = Stream
cupy.cuda.runtime.getDevice = lambda: 0
cupy.cuda.runtime.streamIsCapturing = lambda pointer: False
shapes.perf_counter = lambda: now[0]

running = probe.start("tuned", source="simulated")
running.recorder.budget.grant(1e15)
memory = MemoryPointer(UnownedMemory(4096, 1024, None, 0), 0)
a, b = (cupy.ndarray((16, 16), dtype=cupy.float32, memptr=memory) for _ in range(2))
space = probe.space("copy", {"bx": [16, 32, 64, 128]}, start={"bx": 16})
run = probe.cupy_kernel(
    space, "code", "copied", grid=lambda c, *_: (16 // c.bx + 1,), block=lambda c, *_: (c.bx,),
    shape=lambda a, b, n: (a.shape, a.dtype, a.device, n), share=1e6,
)
for _ in range(12_000):
    run(a, b, cupy.int32(16))
probe.stop()
print(sorted(set(launched)), launched[-1])
"""

HOOKED = """
from kernelcast.probe.cupy.method import CupyMethod
from kernelcast.probe.recording.recorder import Recorder

method = CupyMethod(Recorder())
method.sample(1.0)
method.begin()
import cupy
from cupy.cuda import compiler, function, stream
print(method.hooked, method.hook_error)
made = compiler.function.Module
print(made is not function.Module, issubclass(made, function.Module), compiler.function.LinkState is function.LinkState)
probed = method._function
launch = probed.__new__(probed)
try:
    launch((1,), (64,), ())
except Exception as error:
    print(type(error).__name__)
def watches_captures():
    return "kernelcast" in str(getattr(stream._BaseStream.begin_capture, "__module__", ""))

watched = watches_captures()
method.stop()
print(watched, watches_captures(), compiler.function is function)
"""


def run(program: str, tmp_path: Path) -> list[str]:
    """The lines that a program prints with CuPy and the probe on its path."""
    paths = (*(ROOT / root for root in ("core", "exporter")), folder_with(CUPY))
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "KERNELCAST_SOCKET": str(tmp_path / "none.sock"),
        "KERNELCAST_TUNING_DIRECTORY": "off",
        "CUPY_CACHE_DIR": str(tmp_path),
    }
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_kernel_of_cupy_is_tuned_with_arrays_on_a_device(tmp_path: Path) -> None:
    """On an H100 the first call raised TypeError: unhashable type: 'cupy.cuda.device.Device'."""
    assert run(TUNED, tmp_path) == ["[16, 32, 64, 128] 64"]


def test_the_hook_fits_cupys_classes_passes_its_errors_and_is_removed_again(tmp_path: Path) -> None:
    assert run(HOOKED, tmp_path) == ["True ", "True True True", "CUDARuntimeError", "True False True"]
