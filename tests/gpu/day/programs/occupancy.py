"""Kernels whose occupancy has different limits: `occupancy records` by the probe; `occupancy plain` for ncu."""

import sys
from typing import Any

from tests.gpu.day.programs.kernels import answer
from tests.gpu.day.programs.records import recorded

REGISTERS = 96
CODE = r"""
extern "C" __global__ void occ_small(float* x) { x[threadIdx.x] += 1.0f; }
extern "C" __global__ void occ_wide(float* x) { x[threadIdx.x] += 2.0f; }
extern "C" __global__ void occ_static(float* x) {
    __shared__ float part[10 * 1024];
    part[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = part[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void occ_dynamic(float* x) {
    extern __shared__ float part[];
    part[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = part[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void occ_registers(float* x, int n) {
    float kept[REGISTERS];
    #pragma unroll
    for (int i = 0; i < REGISTERS; ++i) kept[i] = x[(threadIdx.x + i) % 32];
    for (int round = 0; round < n; ++round) {
        #pragma unroll
        for (int i = 0; i < REGISTERS; ++i) kept[i] = kept[i] * 1.0001f + kept[(i + 7) % REGISTERS];
    }
    float sum = 0.0f;
    #pragma unroll
    for (int i = 0; i < REGISTERS; ++i) sum += kept[i];
    x[threadIdx.x % 32] = sum;
}
"""


def launch(cupy: Any) -> None:
    """Launch each kernel once."""
    module = cupy.RawModule(code=CODE, options=(f"-DREGISTERS={REGISTERS}",))
    x = cupy.ones(1024, dtype=cupy.float32)
    for name, block, shared_bytes, more in (
        ("occ_small", 64, 0, ()),
        ("occ_wide", 1024, 0, ()),
        ("occ_static", 128, 0, ()),
        ("occ_dynamic", 96, 24 * 1024, ()),
        ("occ_registers", 256, 0, (cupy.int32(10),)),
    ):
        module.get_function(name)((264,), (block,), (x, *more), shared_mem=shared_bytes)
    cupy.cuda.runtime.deviceSynchronize()


def main() -> None:
    """Launch, and answer with the probe's values."""
    import cupy

    cupy.zeros(1)
    if sys.argv[1] == "plain":
        launch(cupy)
        answer(launched=True)
        return
    with recorded(cupy.cuda.runtime.deviceSynchronize) as records:
        launch(cupy)
    names = {name: cell.name() for name, cell in records.cells.items() if name.startswith("occ_")}
    answer(
        kernels={
            name: {"occupancy": entry.occupancy, "registers": entry.registers, "block": entry.block}
            for name, entry in names.items()
        }
    )


if __name__ == "__main__":
    main()
