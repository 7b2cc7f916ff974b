"""Kernels that are tuned while they run: `tuned cupy SECONDS`, `tuned triton SECONDS`, `tuned search SECONDS`."""

import sys
import time
from typing import Any

from tests.gpu.day.programs.kernels import answer, median

from kernelcast import probe

SAXPY = r"""
extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
    int at = blockIdx.x * threads + threadIdx.x;
    if (at < n) y[at] = a * x[at];
}
"""
TRANSPOSE = r"""
extern "C" __global__ void transpose(const float* a, float* b, int n) {
    int x = blockIdx.x * block_x + threadIdx.x, y = blockIdx.y * block_y + threadIdx.y;
    if (x < n && y < n) b[(long long)x * n + y] = a[(long long)y * n + x];
}
"""
WIDTH = 1 << 20
XS = (4, 8, 16, 32, 64, 128)
YS = (1, 2, 4, 8, 16, 32)
START = (128, 1)
SIDE = 4096
SHARE = 0.5


def blocks(count: int, size: int) -> int:
    """Return the number of blocks that cover a number of elements."""
    return -(-count // size)


def with_cupy(seconds: float) -> None:
    """`cupy_kernel` on a kernel whose result is known; every configuration that ran is counted."""
    import cupy

    probe.start("day-cupy")
    ran: dict[str, int] = {}

    def grid(configuration: Any, *_arguments: Any) -> tuple[int, ...]:
        text = str(dict(configuration))
        ran[text] = ran.get(text, 0) + 1
        return (blocks(WIDTH, configuration["threads"]),)

    space = probe.space("saxpy", {"threads": [32, 64, 128, 256, 512, 1024]}, start={"threads": 32})
    run = probe.cupy_kernel(space, SAXPY, "saxpy", grid=grid, block=lambda c, *_: (c["threads"],), share=SHARE)
    x, y = cupy.arange(WIDTH, dtype=cupy.float32), cupy.zeros(WIDTH, dtype=cupy.float32)
    wrong = calls = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        factor = 1.0 + calls % 7
        run(cupy.float32(factor), x, y, cupy.int32(WIDTH))
        if calls % 500 == 0:
            wrong += not bool((y == factor * x).all())
        calls += 1
    cupy.cuda.runtime.deviceSynchronize()
    answer(calls=calls, wrong=wrong, ran=ran, kept=space.threads)


def with_triton(seconds: float) -> None:
    """`triton_autotune` on a kernel whose result is known."""
    import torch
    import triton
    import triton.language as tl

    probe.start("day-triton")
    configs = [triton.Config({"B": size}, num_warps=warps) for size in (256, 1024, 4096) for warps in (2, 8)]

    @probe.triton_autotune(configs, key=["n"], share=SHARE)
    @triton.jit  # type: ignore[untyped-decorator]
    def added(x, y, out, n, B: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, N803
        at = tl.program_id(0) * B + tl.arange(0, B)
        mask = at < n
        tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)

    ran: dict[str, int] = {}

    def grid(meta: Any) -> tuple[int]:
        ran[str(meta["B"])] = ran.get(str(meta["B"]), 0) + 1
        return (triton.cdiv(WIDTH, meta["B"]),)

    x, y = torch.randn(WIDTH, device="cuda"), torch.randn(WIDTH, device="cuda")
    out = torch.empty_like(x)
    wrong = calls = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        added[grid](x, y, out, WIDTH)
        if calls % 500 == 0:
            wrong += not bool(torch.equal(out, x + y))
            out.zero_()
        calls += 1
    torch.cuda.synchronize()
    answer(calls=calls, wrong=wrong, ran=ran, kept=added.space.configuration)


def search(seconds: float) -> None:
    """A search of block sizes while a transposition runs, then every configuration measured by itself."""
    import cupy

    probe.start("day-search")
    space = probe.space(
        "transpose",
        {"block_x": list(XS), "block_y": list(YS)},
        start={"block_x": START[0], "block_y": START[1]},
        valid=lambda c: is_valid(c["block_x"], c["block_y"]),
    )
    run = probe.cupy_kernel(
        space,
        TRANSPOSE,
        "transpose",
        grid=lambda c, *_: (blocks(SIDE, c["block_x"]), blocks(SIDE, c["block_y"])),
        block=lambda c, *_: (c["block_x"], c["block_y"]),
        share=SHARE,
    )
    a = cupy.random.random((SIDE, SIDE), dtype=cupy.float32)
    b = cupy.empty_like(a)
    end, calls = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        run(a, b, cupy.int32(SIDE))
        calls += 1
    is_right = bool((b == a.T).all())
    kept = (space.block_x, space.block_y)
    probe.stop()
    times_us = {(x, y): alone_us(cupy, a, b, x, y) for x in XS for y in YS if is_valid(x, y)}
    best_us, kept_us, start_us = min(times_us.values()), times_us[kept], times_us[START]
    answer(
        calls=calls,
        result_is_right=is_right,
        kept="x".join(map(str, kept)),
        kept_us=kept_us,
        best_us=best_us,
        start_us=start_us,
        place=sorted(times_us.values()).index(kept_us) + 1,
        configurations=len(times_us),
        gain_taken=round((start_us - kept_us) / (start_us - best_us), 3) if start_us > best_us else None,
        all_us={f"{x}x{y}": round(each, 1) for (x, y), each in times_us.items()},
    )


def is_valid(block_x: int, block_y: int) -> bool:
    """Whether a block has at least a warp and at most 1,024 threads."""
    return 32 <= block_x * block_y <= 1024


def alone_us(cupy: Any, a: Any, b: Any, block_x: int, block_y: int) -> float:
    """Return the median time of a configuration, measured by events."""
    kernel = cupy.RawKernel(TRANSPOSE, "transpose", options=(f"-Dblock_x={block_x}", f"-Dblock_y={block_y}"))
    began, ended = cupy.cuda.Event(), cupy.cuda.Event()
    grid, block = (blocks(SIDE, block_x), blocks(SIDE, block_y)), (block_x, block_y)
    times: list[float] = []
    for _ in range(16):
        began.record()
        kernel(grid, block, (a, b, cupy.int32(SIDE)))
        ended.record()
        ended.synchronize()
        times.append(cupy.cuda.get_elapsed_time(began, ended) * 1e3)
    return median(times[1:])


if __name__ == "__main__":
    {"cupy": with_cupy, "triton": with_triton, "search": search}[sys.argv[1]](float(sys.argv[2]))
