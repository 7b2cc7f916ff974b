"""A decode loop: a CUDA graph of 300 kernels of 1.2 µs, replayed. `decode turns SECONDS`, `decode plain SECONDS`."""

import sys
import time
from collections.abc import Callable

from tests.gpu.day.names import CUPTI
from tests.gpu.day.programs.kernels import answer
from tests.gpu.day.programs.records import Switch
from tests.gpu.day.programs.turns import OFF, Ticker, by_turns, summary

KERNELS = 300
SECTION_SECONDS = 1.5


class Decode:
    """The graph and its loop."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._vectors = [torch.zeros(2048, device="cuda") for _ in range(4)]
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for vector in self._vectors:
                vector.add_(1)
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            for position in range(KERNELS):
                self._vectors[position % 4].add_(1)
        self.launches = 0

    def used_bytes(self) -> int:
        """Return the device memory in use, of all of the device's programs."""
        free, total = self._torch.cuda.mem_get_info()
        return int(total - free)

    def section(self, tick: Callable[[], None], seconds: float = SECTION_SECONDS) -> float:
        """Replay for some seconds; returns the seconds of a kernel."""
        ticker, replays, began = Ticker(tick), 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            for _ in range(20):
                self._graph.replay()
            self._torch.cuda.synchronize()
            replays += 20
            ticker()
        self.launches += replays * KERNELS
        return (time.perf_counter() - began) / (replays * KERNELS)


def turns(seconds: float) -> None:
    """Throughput without records and with one for each kernel; device memory."""
    decode = Decode()
    decode.section(_nothing)
    before = decode.used_bytes()
    every = Switch(CUPTI)
    times = by_turns({OFF: None, "every": every}, decode.section, seconds)
    records = every.records()
    answer(
        **summary(times),
        kernels_per_second={name: [round(1 / each) for each in values] for name, values in times.items()},
        launches=records.launches(),
        lost=records.lost,
        device_bytes=decode.used_bytes() - before,
    )


def plain(seconds: float) -> None:
    """The loop alone, after the probe has had time to begin: its speed second by second, device memory in use."""
    decode = Decode()
    time.sleep(2.0)
    most, end, rates = 0, time.monotonic() + seconds, []
    while time.monotonic() < end:
        rates.append(round(1 / decode.section(_nothing, 1.0)))
        most = max(most, decode.used_bytes())
    answer(kernels_per_second=rates, launches=decode.launches, used_bytes=most)


def _nothing() -> None:
    """Tick nothing."""


if __name__ == "__main__":
    (turns if sys.argv[1] == "turns" else plain)(float(sys.argv[2]))
