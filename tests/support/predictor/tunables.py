"""Tunables of a program, and a GPU that is busy."""

import numpy as np
from tests.unit.predictor.conftest import kernel_subject

from kernelcast.predictor.series.windows import Windows
from kernelcast.predictor.tuning.tunables import GpuTime, ReportedTunable

SECOND_NS = 1_000_000_000


NOW_NS = 1_800_000_000 * SECOND_NS


ALLOWED = ("32", "48", "64", "128", "192", "256", "512")


def tunable(
    value: str, *, allowed: tuple[str, ...] = ALLOWED, kind: str = "block_size", kernel: str = "saxpy"
) -> ReportedTunable:
    return ReportedTunable("train", "block", value, allowed, kind, kernel, "A100", "v1")


def gpu_time(**seconds: float) -> GpuTime:
    windows = Windows(interval_ns=SECOND_NS, points=48, max_series=100)
    for name, spent in seconds.items():
        row = windows.admit(kernel_subject(f"{name}#0123abcd"), owner=0)
        for moment, total in ((1, 0.0), (2, spent)):
            windows.put_totals(
                np.array([row]),
                np.array([NOW_NS + moment]),
                np.array([NOW_NS]),
                (np.array([total]), np.array([100.0 * total])),
                now_seconds=0.0,
            )
    return GpuTime(windows)


BUSY = gpu_time(saxpy=9.0, gemm=1.0)
