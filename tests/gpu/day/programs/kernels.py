"""Kernels whose work is known, and the one way in which a program answers."""

import json
import sys
from typing import Any, Final, NoReturn

from tests.gpu.day.node import SKIP

SPIN: Final = r"""
extern "C" __global__ void spin(long long cycles) {
    long long began = clock64();
    while (clock64() - began < cycles) {}
}
extern "C" __global__ void spin_ns(unsigned long long duration_ns) {
    unsigned long long began, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(began));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - began < duration_ns);
}
extern "C" __global__ void touch(float* x) { x[threadIdx.x] = x[threadIdx.x] * 0.5f + 1.0f; }
extern "C" __global__ void bump(unsigned long long* x) { x[threadIdx.x] += 1; }
"""


def answer(**output: Any) -> None:
    """Print the program's output, a JSON object, as its last line."""
    sys.stdout.write(json.dumps(output, default=str) + "\n")
    sys.stdout.flush()


def cannot(reason: str) -> NoReturn:
    """End the program: it cannot work here."""
    answer(**{SKIP: reason})
    raise SystemExit(0)


def median(values: list[float]) -> float:
    """Return the middle value; of an even number, the upper of the two."""
    return sorted(values)[len(values) // 2]
