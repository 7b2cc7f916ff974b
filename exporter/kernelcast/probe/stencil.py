"""The example's work: Jacobi sweeps over a square plate, in blocks whose size matters.

Both forms compute the same, whatever the block size: only the time differs. On a CPU each tile is a handful of numpy
calls, so small tiles pay for the calls. On a GPU a block that is no multiple of 32 threads leaves lanes of its last
warp idle (48 threads need two warps: a quarter of the lanes does nothing).
"""

from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Final, Protocol

SIGNATURE: Final = "jacobi_sweep(float const*, float*, int)"
BLOCK_SIZES: Final = (32, 48, 64, 96, 128, 192, 256, 384, 512)
CPU_CELLS: Final = 768
GPU_CELLS: Final = 4096

_SOURCE: Final = r"""
extern "C" __global__ void jacobi_sweep(const float* from, float* to, int cells) {
    long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= (long long)cells * cells) return;
    int width = cells + 2;
    long long at = (index / cells + 1) * width + index % cells + 1;
    float mean = 0.25f * (from[at - 1] + from[at + 1] + from[at - width] + from[at + width]);
    float term = mean;
    // Enough arithmetic to make the lanes, not the memory, the bottleneck; it adds less than a rounding error.
    for (int i = 0; i < 256; ++i) term = fmaf(term, 0.9999f, 1e-30f);
    to[at] = mean + 1e-30f * term;
}
"""


@dataclass(frozen=True, slots=True)
class StencilLaunch:
    """One launch, as it is reported: nanoseconds on the device, grid, block and registers per thread."""

    duration_ns: int
    grid: str
    block: str
    registers: int = 0


class Plate(Protocol):
    """A plate with one hot edge."""

    device: str
    source: str
    method: str

    def sweep(self, block_size: int) -> StencilLaunch:
        """Relax every cell once."""
        ...

    def heat(self) -> float:
        """The sum over all cells; the same for every block size."""
        ...


class CpuPlate:
    """The sweep in numpy, tile by tile.

    Args:
        cells: Cells along each edge.
    """

    device = "CPU (numpy)"
    source = "simulated"
    method = "manual"

    def __init__(self, cells: int = CPU_CELLS) -> None:
        import numpy as np  # noqa: PLC0415  the probe itself needs no third-party package

        self._add: Any = np.add
        self._cells = cells
        self._now: Any = np.zeros((cells + 2, cells + 2), dtype=np.float32)
        self._now[0, :] = 1.0
        self._next: Any = self._now.copy()

    def sweep(self, block_size: int) -> StencilLaunch:
        """Relax every cell once, in square tiles."""
        began_ns = perf_counter_ns()
        ends = range(1, self._cells + 1, block_size)
        for top in ends:
            for left in ends:
                self._tile(top, left, block_size)
        self._now, self._next = self._next, self._now
        duration_ns = perf_counter_ns() - began_ns
        return StencilLaunch(duration_ns, f"{len(ends)}x{len(ends)}x1", f"{block_size}x1x1")

    def heat(self) -> float:
        """The sum over all cells."""
        return float(self._now[1:-1, 1:-1].sum(dtype="float64"))

    def _tile(self, top: int, left: int, size: int) -> None:
        bottom, right = min(top + size, self._cells + 1), min(left + size, self._cells + 1)
        now, out = self._now, self._next[top:bottom, left:right]
        self._add(now[top - 1 : bottom - 1, left:right], now[top + 1 : bottom + 1, left:right], out=out)
        out += now[top:bottom, left - 1 : right - 1]
        out += now[top:bottom, left + 1 : right + 1]
        out *= 0.25


class GpuPlate:
    """The sweep as a CUDA kernel through CuPy, timed by CUDA events.

    Args:
        cupy: The module.
        cells: Cells along each edge.
    """

    source = ""
    method = "manual"

    def __init__(self, cupy: Any, cells: int = GPU_CELLS) -> None:
        self._cupy = cupy
        self._cells = cells
        self._kernel = cupy.RawKernel(_SOURCE, "jacobi_sweep")
        self._now = cupy.zeros((cells + 2, cells + 2), dtype=cupy.float32)
        self._now[0, :] = 1.0
        self._next = self._now.copy()
        self._began, self._ended = cupy.cuda.Event(), cupy.cuda.Event()
        self.device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()

    def sweep(self, block_size: int) -> StencilLaunch:
        """Relax every cell once, one thread a cell."""
        blocks = -(-self._cells * self._cells // block_size)
        self._began.record()
        self._kernel((blocks,), (block_size,), (self._now, self._next, self._cupy.int32(self._cells)))
        self._ended.record()
        self._ended.synchronize()
        self._now, self._next = self._next, self._now
        duration_ns = round(self._cupy.cuda.get_elapsed_time(self._began, self._ended) * 1e6)
        return StencilLaunch(duration_ns, f"{blocks}x1x1", f"{block_size}x1x1", self._kernel.num_regs)

    def heat(self) -> float:
        """The sum over all cells."""
        return float(self._now[1:-1, 1:-1].sum(dtype=self._cupy.float64))


def best_plate() -> Plate:
    """On a GPU where CuPy and one are there, else on the CPU."""
    try:
        import cupy  # noqa: PLC0415  optional

        if cupy.cuda.is_available():
            return GpuPlate(cupy)
    except Exception:  # noqa: BLE001, S110  whatever CuPy lacks here (ImportError, a driver's error), the CPU will do
        pass
    return CpuPlate()
