"""The programs that are timed with and without the probe: `python benchmarks/paired/programs.py NAME`.

Each warms up (contexts, compilation, clocks), then times one section that ends with a synchronisation, and prints one
line of JSON: `{"seconds": …, "launches": …}`. The launch-bound programs do as little as possible per
launch, so that the probe's addition to a launch is fully visible.
"""

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

LAUNCHES = 200_000
"""Work of each program's timed section: seconds on current GPUs and processors."""
SWEEPS = 400
STEPS = 300
TURNS = 20_000_000
OBSERVED = 20_000


def launch_bound() -> tuple[int, Callable[[], None]]:
    """One kernel of a few microseconds, launched as fast as Python can."""
    cupy: Any = import_module("cupy")
    kernel = cupy.RawKernel(
        'extern "C" __global__ void touch(float* x) { x[threadIdx.x] = x[threadIdx.x] * 0.5f + 1.0f; }', "touch"
    )
    data = cupy.zeros(128, dtype=cupy.float32)

    def section() -> None:
        for _ in range(LAUNCHES):
            kernel((1,), (128,), (data,))
        cupy.cuda.Device().synchronize()

    return LAUNCHES, section


def compute_bound() -> tuple[int, Callable[[], None]]:
    """Element-wise kernels, reductions and matrix products on 256 MiB: the GPU is the limit, not Python."""
    cupy: Any = import_module("cupy")
    left = cupy.random.random((8192, 8192), dtype=cupy.float32)
    right = cupy.random.random((8192, 8192), dtype=cupy.float32)

    def section() -> None:
        out = left
        for _ in range(SWEEPS // 10):
            out = cupy.tanh(out * 0.5 + right) - out.mean()
            out = out @ right * (1.0 / 8192)
        cupy.cuda.Device().synchronize()

    return SWEEPS // 10 * 6, section


def training_step() -> tuple[int, Callable[[], None]]:
    """A small transformer layer's forward, backward and AdamW step in PyTorch."""
    torch: Any = import_module("torch")
    device = torch.device("cuda")
    model = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = torch.randn(32, 128, 512, device=device)

    def section() -> None:
        for _ in range(STEPS):
            optimizer.zero_grad(set_to_none=True)
            model(batch).square().mean().backward()
            optimizer.step()
        torch.cuda.synchronize()

    return 0, section


def without_a_gpu() -> tuple[int, Callable[[], None]]:
    """Python alone: a program that inherits the probe's environment and never has a CUDA context."""

    def section() -> None:
        total = 0
        for turn in range(TURNS):
            total += turn * turn % 7
        if total < 0:
            raise ArithmeticError(total)

    return 0, section


def observed() -> tuple[int, Callable[[], None]]:
    """A kernel's worth of work on the CPU, about 0.1 ms each, handed to `observe()` by hand where a probe runs."""
    probe: Any = import_module("kernelcast.probe")

    def section() -> None:
        for _ in range(OBSERVED):
            began_ns = time.perf_counter_ns()
            sum(range(4_000))
            probe.observe("work", time.perf_counter_ns() - began_ns)

    return OBSERVED, section


PROGRAMS = {
    "launch": launch_bound,
    "compute": compute_bound,
    "torch": training_step,
    "idle": without_a_gpu,
    "observed": observed,
}


def main(name: str) -> None:
    """Run a section once to warm up, time it, and print the result."""
    launches, section = PROGRAMS[name]()
    section()
    began = time.perf_counter()
    section()
    print(json.dumps({"seconds": time.perf_counter() - began, "launches": launches}))


if __name__ == "__main__":
    main(sys.argv[1])
