"""Cost of programs for the exporter, per interval: frames decoded, totals added up, saved, shown and encoded.

    python benchmarks/exporter_reports.py [--programs N] [--gpus N] [--variants N] [--launches N] [--json FILE]

In every interval all of a program's 170 kernels have been launched on each of its GPUs (170 names and 579 variants are
the most of six real traces). CPU time of one thread; the cost in the program itself is not included. Between intervals
the caches are emptied, as ten seconds of other programs empty them.
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelcast.exporter.delivery.publish import SamplePublisher
from kernelcast.exporter.programs.limits import ProbeLimits
from kernelcast.exporter.programs.session import ProbeSession
from kernelcast.exporter.state import StateFile
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.wire.frames import DeviceClaim, Frame, Hello, KernelRows, Names, VariantRows, decode, encode
from kernelcast.wire.identity import Device, Process

KERNELS = 170
"""Names of a program, the most of six real traces."""
SECOND_NS = 1_000_000_000
CACHE_BYTES = 64 * 1024 * 1024
"""Larger than the processor's caches: writing them empties the caches between intervals."""


@dataclass(frozen=True, slots=True)
class Load:
    """Activity of one program in an interval.

    Attributes:
        gpus: GPUs that it uses.
        variants: Combinations of kernel and launch configuration on each of them.
        launches: Launches of each of these.
    """

    gpus: int
    variants: int
    launches: int


class Program:
    """A process with all its GPUs: its frames, and its session in the daemon."""

    def __init__(self, number: int, load: Load, rng: random.Random) -> None:
        self._load = load
        self._rng = rng
        self._named: set[int] = set()
        self.recorder = Recorder()
        devices = tuple(Device("node1", f"GPU-{gpu}", str(gpu)) for gpu in range(load.gpus))
        claims = tuple(DeviceClaim(device.uuid) for device in devices)
        hello = Hello(f"program {number}", f"nonce{number}", SECOND_NS, 100 + number, devices=claims, version="1")
        process = Process(hello.program, hello.nonce, hello.start_ns, "", hello.pid)
        self.session = ProbeSession(process, hello, devices, ProbeLimits())
        self.mean_ns = [round(rng.lognormvariate(10, 1.5)) for _ in range(KERNELS)]

    def packets(self) -> list[bytes]:
        """Frames after an interval in which the program launched every kernel on every GPU."""
        frames: list[Frame] = []
        for gpu in range(self._load.gpus):
            for number in range(self._load.variants):
                self._launch(number % KERNELS, f"{8 + number // KERNELS}x1x1", gpu)
            cells = self.recorder.cells(gpu)
            names = tuple(one for one in (cell.name() for cell in cells) if one.kernel not in self._named)
            self._named.update(one.kernel for one in names)
            frames += [Names(names)] if names else []
            frames += [KernelRows(gpu, tuple(map(self.recorder.take, cells)))]
            frames += [VariantRows(gpu, self.recorder.take_variants(cells))]
            frames += [self.recorder.counters(gpu, dropped_frames=0)]
        return [packet for frame in frames for packet in encode(frame)]

    def _launch(self, kernel: int, grid: str, gpu: int) -> None:
        name, variant = f"void kernel_{kernel}x<float, {kernel}>", f"{grid}|64x1x1"
        for _ in range(self._load.launches):
            duration_ns = round(self.mean_ns[kernel] * self._rng.lognormvariate(0, 0.25))
            self.recorder.observe(name, duration_ns, grid=grid, device=gpu, variant=variant)


class Daemon:
    """The exporter's side, without sockets and Kafka.

    Args:
        directory: Where its state is kept.
    """

    def __init__(self, directory: Path) -> None:
        self.aggregator = Aggregator()
        self.state = StateFile(directory)
        self.bytes = self.messages = 0
        self.publisher = SamplePublisher(self)
        self.spent: dict[str, list[float]] = {}

    def send(self, _topic: str, *, key: bytes | None, value: bytes | None) -> None:
        """Count a message, in place of Kafka."""
        assert key
        assert value
        self.bytes += len(value)
        self.messages += 1

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Note the CPU time of this thread in milliseconds."""
        began = time.thread_time()
        yield
        self.spent.setdefault(stage, []).append((time.thread_time() - began) * 1000)

    def interval(self, programs: list[Program], now_ns: int) -> int:
        """One interval of the daemon's life; returns the samples that it published."""
        for program in programs:
            packets = program.packets()
            bytearray(b"x") * CACHE_BYTES
            with self.timed("decode"):
                frames = [decode(packet) for packet in packets]
            with self.timed("session"):
                for frame in frames:
                    program.session.take(frame)
                reports = program.session.reports()
            with self.timed("aggregate"):
                for report in reports:
                    self.aggregator.report(report)
        with self.timed("emit"):
            groups = list(self.aggregator.samples(now_ns))
        with self.timed("state"):
            self.state.save(self.aggregator)
        with self.timed("encode"):
            for group in groups:
                self.publisher.kernels(group)
        return sum(len(group.samples) for group in groups)


def measure(programs: int, intervals: int, load: Load) -> dict[str, Any]:
    """CPU milliseconds per interval and stage: medians, the first intervals left out."""
    rng = random.Random(1)
    running = [Program(number, load, rng) for number in range(programs)]
    samples = 0
    per_interval: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as directory:
        daemon = Daemon(Path(directory))
        for second in range(intervals):
            daemon.spent.clear()
            samples = daemon.interval(running, (10 + second) * SECOND_NS)
            per_interval.append({stage: sum(spent) for stage, spent in daemon.spent.items()})
    settled = per_interval[2:]
    stages = {stage: statistics.median(one[stage] for one in settled) for stage in settled[0]}
    total = sum(stages.values())
    rows = programs * load.gpus * (KERNELS + load.variants)
    return {"programs": programs, "gpus": load.gpus, "rows": rows, "samples": samples, "ms": stages, "total_ms": total}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--variants", type=int, default=KERNELS)
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--intervals", type=int, default=7)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    load = Load(arguments.gpus, arguments.variants, arguments.launches)
    results = [measure(programs, arguments.intervals, load) for programs in arguments.programs]
    for result in results:
        shown = ", ".join(f"{stage} {spent:.1f}" for stage, spent in result["ms"].items())
        print(
            f"{result['programs']} programs x {load.gpus} GPUs x {KERNELS} kernels in {load.variants} variants: "
            f"{result['total_ms']:.1f} ms of CPU ({result['total_ms'] * 1000 / result['rows']:.1f} us a row, "
            f"{result['samples']} samples): {shown}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
