"""Loads of known operations and bytes, one after the other: `load SECONDS NAME…`; prints `NAME RATE` once a second."""

import sys
import time
from collections.abc import Callable
from typing import Any

SIDE = 8192
COPY_BYTES = 1 << 28
DEVICE_COPY_BYTES = 1 << 31
FP64_ELEMENTS = 1 << 22
FP64_ROUNDS = 2_000


def loads(torch: Any) -> dict[str, Callable[[], tuple[Callable[[], object], int]]]:
    """Return by name: makes the function of one piece of work, and its operations or bytes."""

    def product(kind: Any) -> tuple[Callable[[], object], int]:
        a = torch.randn(SIDE, SIDE, device="cuda", dtype=kind)
        torch.backends.cuda.matmul.allow_tf32 = False
        return lambda: torch.mm(a, a), 2 * SIDE**3

    def fp64() -> tuple[Callable[[], object], int]:
        import cupy

        code = f"double t = x; for (int i = 0; i < {FP64_ROUNDS}; ++i) t = t * 0.999 + 1e-9; y = t"
        kernel = cupy.ElementwiseKernel("float64 x", "float64 y", code, "day_fp64")
        x = cupy.ones(FP64_ELEMENTS)
        return lambda: kernel(x), 2 * FP64_ROUNDS * FP64_ELEMENTS

    def copy(size_bytes: int, source: str, target: str, each_bytes: int) -> tuple[Callable[[], object], int]:
        def made(place: str) -> Any:
            is_host = place == "host"
            device = "cpu" if is_host else "cuda"
            return torch.empty(size_bytes, dtype=torch.uint8, device=device, pin_memory=is_host)

        a, b = made(source), made(target)
        return lambda: b.copy_(a, non_blocking=True), each_bytes

    return {
        "fp32": lambda: product(torch.float32),
        "bf16": lambda: product(torch.bfloat16),
        "fp64": fp64,
        "dram": lambda: copy(DEVICE_COPY_BYTES, "device", "device", 2 * DEVICE_COPY_BYTES),
        "h2d": lambda: copy(COPY_BYTES, "host", "device", COPY_BYTES),
        "d2h": lambda: copy(COPY_BYTES, "device", "host", COPY_BYTES),
        "idle": lambda: (lambda: time.sleep(0.05), 0),
    }


def main() -> None:
    """Run each load for some seconds."""
    import torch

    torch.zeros(1, device="cuda")
    known = loads(torch)
    for name in sys.argv[2:]:
        work, amount = known[name]()
        work()
        torch.cuda.synchronize()
        end = time.monotonic() + float(sys.argv[1])
        while time.monotonic() < end:
            began, done = time.monotonic(), 0
            while time.monotonic() - began < 1.0:
                for _ in range(8):
                    work()
                torch.cuda.synchronize()
                done += 8 * amount
            sys.stdout.write(f"{name} {done / (time.monotonic() - began)}\n")
            sys.stdout.flush()
        del work
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
