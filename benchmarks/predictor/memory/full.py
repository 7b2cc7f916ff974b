"""A predictor's memory with full windows and histories, filled with simulated values."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.engine import Engine, Partition
from kernelcast.predictor.series.subjects import DURATION, Form, Subject
from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND, PredictorSettings
from kernelcast.wire.catalogue.devices import device

SERIES: Final = 100_000
INTERVAL_SECONDS: Final = 15.0
START_SECONDS: Final = 1_800_000_000 // 3600 * 3600
PARTITION: Final[Partition] = ("kernelcast.device", 0)
GPUS: Final = 8
GAUGES: Final = (device.GPU_TEMP, device.POWER_USAGE, device.FB_USED, device.GPU_UTIL, device.SM_CLOCK)
KERNELS: Final = 5
_CHUNK_ROWS: Final = 2048


class FullMemory:
    """An engine with series of simulated GPUs: five gauges and the mean durations of five kernels each.

    Attributes:
        engine: The engine.
        rows: Its series.
        gauge: Which of them are gauges of whole numbers; the others are durations.
        second: Event time.
    """

    def __init__(self, series: int, *, seed: int) -> None:
        settings = PredictorSettings(interval_seconds=INTERVAL_SECONDS, max_series=series)
        self.second = START_SECONDS
        self.engine = Engine(settings, clock_ns=lambda: self.second * NANOSECONDS_PER_SECOND)
        self._rng = np.random.default_rng(seed)
        subjects = (subject for _, subject in zip(range(series), _subjects(), strict=False))
        self.rows = np.array([self.engine.windows.admit(subject, owner=0) for subject in subjects])
        gauge = np.arange(series) % (len(GAUGES) + KERNELS) < len(GAUGES)
        self.gauge = gauge
        self._level = np.where(gauge, self._rng.integers(40, 90, series), 10 ** self._rng.uniform(-5, -2, series))

    def fill(self) -> None:
        """Fill windows and histories; the engine's partition counts as assigned and read."""
        engine = self.engine
        engine.offsets[PARTITION] = 0
        interval = self.second // round(INTERVAL_SECONDS)
        block = interval // engine.cycle.histories.block_intervals - 1
        newest = {"windows": interval, "blocks": block, "others": block}
        newest["hours"] = (block + 1) // engine.cycle.histories.hour_blocks - 1
        for begin in range(0, len(self.rows), _CHUNK_ROWS):
            rows = self.rows[begin : begin + _CHUNK_ROWS]
            engine.cycle.histories.prepare(rows)
            for name, spans in engine.states.rows.spans.items():
                values = np.stack([self.values(rows) for _ in range(spans.length)], axis=1)
                spans.fill(rows, np.full(len(rows), newest[name]), values.astype(np.float32))
            engine.windows.last_ns[rows] = self.second * NANOSECONDS_PER_SECOND
            engine.windows.touched[rows] = self.second

    def values(self, rows: Ints) -> Floats:
        """One value of each row: whole numbers for gauges, continuous durations."""
        noise = self._rng.normal(0, 1, len(rows))
        gauge = self.gauge[rows]
        return np.where(gauge, np.round(self._level[rows] + noise), self._level[rows] * (1 + 0.03 * noise))

    def minute(self) -> None:
        """Write a minute's value to each series and condense the blocks that have ended."""
        self.write_minute()
        self.engine.cycle.histories.advance(self.rows)

    def write_minute(self) -> None:
        """Write a minute's value to each series."""
        self.second += 60
        times = np.full(len(self.rows), self.second * NANOSECONDS_PER_SECOND)
        self.engine.windows.put_levels(self.rows, times, self.values(self.rows), now_seconds=float(self.second))
        self.engine.offsets[PARTITION] += 1


def _subjects() -> Iterator[Subject]:
    gpu = 0
    while True:
        labels = {
            "Hostname": f"node-{gpu // GPUS:05d}.cluster.example.org",
            "UUID": f"GPU-{gpu:08x}-aaaa-bbbb-cccc-dddddddddddd",
            "device": f"nvidia{gpu % GPUS}",
            "gpu": str(gpu % GPUS),
            "modelName": "NVIDIA H200",
            "pci_bus_id": f"00000000:{gpu % GPUS:02x}:00.0",
        }
        pairs = tuple(sorted(labels.items()))
        for metric in GAUGES:
            yield Subject(metric.prometheus_name, Form.LEVEL, pairs)
        for kernel in range(KERNELS):
            own = {
                "kernel": f"void gemm_{kernel}<float, 128>",
                "kernel_class": "compute",
                "program": f"train-{gpu // 64}",
            }
            yield Subject(DURATION, Form.MEAN, tuple(sorted({**labels, **own}.items())))
        gpu += 1


def resident_bytes() -> int:
    """Resident memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def peak_bytes() -> int:
    """Largest resident memory of this process so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


class Stopwatch:
    """Processor and wall time since it was made."""

    def __init__(self) -> None:
        self._wall, self._processor = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        """Both, in seconds."""
        return {
            "processor_seconds": round(time.process_time() - self._processor, 3),
            "wall_seconds": round(time.perf_counter() - self._wall, 3),
        }
