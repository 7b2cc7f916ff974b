"""What the exporter pays for its programs: frames decoded, totals added up, samples made and encoded, per interval.

    python benchmarks/exporter_reports.py [--programs N] [--json FILE]

A program has 8 GPUs, and in every interval all of its 170 kernels have been launched on each of them (170 names are the
most of six real traces). CPU time of one thread; what a program's own side costs is not in it.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kernelcast.exporter.aggregate import Aggregator
from kernelcast.exporter.probe_limits import ProbeLimits
from kernelcast.exporter.probe_session import ProbeSession
from kernelcast.exporter.publish import Publisher
from kernelcast.probe.recorder import Recorder
from kernelcast.wire.frames import DeviceClaim, Frame, Hello, KernelRows, Names, VariantRows, decode, encode
from kernelcast.wire.identity import Device, Process

KERNELS = 170
GPUS = 8
SECOND_NS = 1_000_000_000


class Program:
    """A process with all its GPUs: what it sends, and the daemon's session of it."""

    def __init__(self, number: int, rng: random.Random) -> None:
        self._rng = rng
        self._named: set[int] = set()
        self.recorder = Recorder()
        devices = tuple(Device("node1", f"GPU-{gpu}", str(gpu)) for gpu in range(GPUS))
        claims = tuple(DeviceClaim(device.uuid) for device in devices)
        hello = Hello(f"program {number}", f"nonce{number}", SECOND_NS, 100 + number, devices=claims, version="1")
        process = Process(hello.program, hello.nonce, hello.start_ns, "", hello.pid)
        self.session = ProbeSession(process, hello, devices, ProbeLimits())
        self.mean_ns = [round(rng.lognormvariate(10, 1.5)) for _ in range(KERNELS)]

    def packets(self) -> list[bytes]:
        """What it sends after an interval in which it launched every kernel on every GPU."""
        frames: list[Frame] = []
        for gpu in range(GPUS):
            for kernel, mean_ns in enumerate(self.mean_ns):
                for _ in range(3):
                    duration_ns = round(mean_ns * self._rng.lognormvariate(0, 0.25))
                    name = f"void kernel_{kernel}x<float, {kernel}>"
                    self.recorder.observe(name, duration_ns, grid="8x1x1", device=gpu, variant="8x1x1|64x1x1")
            cells = self.recorder.cells(gpu)
            names = tuple(one for one in (cell.name() for cell in cells) if one.kernel not in self._named)
            self._named.update(one.kernel for one in names)
            frames += [Names(names)] if names else []
            frames += [KernelRows(gpu, tuple(map(self.recorder.take, cells)))]
            frames += [VariantRows(gpu, self.recorder.take_variants(cells))]
            frames += [self.recorder.counters(gpu, dropped_frames=0)]
        return [packet for frame in frames for packet in encode(frame)]


class Daemon:
    """The exporter's side, without sockets and Kafka."""

    def __init__(self) -> None:
        self.aggregator = Aggregator()
        self.bytes = self.messages = 0
        self.publisher = Publisher(self)
        self.spent: dict[str, list[float]] = {}

    def send(self, _topic: str, *, key: bytes | None, value: bytes | None) -> None:
        """Takes a message."""
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
        """One second of the daemon's life; returns the samples that it published."""
        for program in programs:
            packets = program.packets()
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
        with self.timed("encode"):
            for group in groups:
                self.publisher.kernels(group)
        return sum(len(group.samples) for group in groups)


def measure(programs: int, intervals: int) -> dict[str, Any]:
    """CPU milliseconds per interval and stage: medians, the first intervals left out."""
    rng = random.Random(1)
    daemon, running = Daemon(), [Program(number, rng) for number in range(programs)]
    samples = 0
    per_interval: list[dict[str, float]] = []
    for second in range(intervals):
        daemon.spent.clear()
        samples = daemon.interval(running, (10 + second) * SECOND_NS)
        per_interval.append({stage: sum(spent) for stage, spent in daemon.spent.items()})
    settled = per_interval[2:]
    stages = {stage: statistics.median(one[stage] for one in settled) for stage in settled[0]}
    total = sum(stages.values())
    rows = programs * GPUS * KERNELS
    return {"programs": programs, "rows": rows, "samples": samples, "ms": stages, "total_ms": total}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--intervals", type=int, default=7)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = [measure(programs, arguments.intervals) for programs in arguments.programs]
    for result in results:
        shown = ", ".join(f"{stage} {spent:.1f}" for stage, spent in result["ms"].items())
        print(
            f"{result['programs']} programs x {GPUS} GPUs x {KERNELS} kernels: {result['total_ms']:.1f} ms of CPU "
            f"({result['total_ms'] * 1000 / result['rows']:.1f} us a row, {result['samples']} samples): {shown}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
