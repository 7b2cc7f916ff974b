"""CUDA graphs under CUPTI: `graphs whole WHO`, `graphs switches COUNT`, `graphs late WHO`.

CUPTI is loaded before the first graph, as a probe that begins with the program loads it. `late` is the other order: a
graph is there before libcupti is, as for a program that calls `probe.start` in its middle. PyTorch's issue 75504 tells
of crashes then; WHO is `raw` or `probe`.
"""

import os
import random
import sys
import threading
import time
from typing import Any

from tests.gpu.day.layout import CONCURRENT_KERNEL, GRAPH_TRACE, walk
from tests.gpu.day.programs.kernels import SPIN, answer
from tests.gpu.day.programs.raw_cupti import RawCupti
from tests.gpu.day.programs.records import recorded

from kernelcast.probe.cupti.library import SYNCHRONIZATION

NODES = 20
LAUNCHES = 50
LONG_NODES = 300
LAST_LAUNCHES = 20
THREADS = 32


class Graphs:
    """Graphs of a kernel that adds 1 to a counter, on one stream."""

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy
        self._bump = cupy.RawModule(code=SPIN).get_function("bump")
        self.counter = cupy.zeros(THREADS, dtype=cupy.uint64)
        self.stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.runtime.deviceSynchronize()
        with self.stream:
            self._launch()
        self.stream.synchronize()
        self.expected = 1

    def captured(self, nodes: int) -> Any:
        """Return a graph of some kernels."""
        with self.stream:
            self.stream.begin_capture()
            for _ in range(nodes):
                self._launch()
            return self.stream.end_capture()

    def replay(self, graph: Any, nodes: int, launches: int) -> None:
        """Launch a graph of some kernels, and wait for it."""
        with self.stream:
            for _ in range(launches):
                graph.launch()
        self.stream.synchronize()
        self.expected += nodes * launches

    def is_right(self) -> bool:
        """Whether every kernel has run exactly once."""
        return bool((self.counter == self.expected).all())

    def _launch(self) -> None:
        self._bump((1,), (THREADS,), (self.counter,))


def whole(who: str) -> None:
    """CUPTI's one record for a whole graph (kind 51), which the probe never asks for: WHO says why.

    `early` enables it after a graph was launched, `late` before the first is captured.
    """
    graphs = Graphs()
    cupti = RawCupti()
    graph = None
    if who == "early":
        graph = graphs.captured(NODES)
        graphs.replay(graph, NODES, 1)
    cupti.enable(GRAPH_TRACE)
    graphs.replay(graph or graphs.captured(NODES), NODES, LAUNCHES)
    cupti.close()
    _lengths, found = walk(cupti.buffers, [GRAPH_TRACE])
    answer(records=len(found), launches=LAUNCHES, result_is_right=graphs.is_right())


def switches(count: int) -> None:
    """Kinds are switched while a graph is replayed; then its kernels must have their records again."""
    graphs = Graphs()
    cupti = RawCupti()
    cupti.keeps = False
    graph = graphs.captured(LONG_NODES)
    graphs.replay(graph, LONG_NODES, 20)
    ended = threading.Event()
    replayed = [0]

    def replay() -> None:
        while not ended.is_set():
            graphs.replay(graph, LONG_NODES, 10)
            replayed[0] += 10

    thread = threading.Thread(target=replay)
    thread.start()
    costs_ms: dict[str, list[float]] = {}
    codes: set[int] = set()
    began = time.monotonic()
    for number in range(count):
        time.sleep(random.uniform(0.0, 0.01))
        # Kernels on, waits beside them, waits off, all off: as windows and levels of the probe do.
        for name, kind in _TURNS[number % len(_TURNS)]:
            before = time.perf_counter()
            codes.add(getattr(cupti, name)(kind))
            costs_ms.setdefault(f"{name} {kind}", []).append((time.perf_counter() - before) * 1e3)
    seconds = time.monotonic() - began
    ended.set()
    thread.join()
    cupti.close()
    cupti.keeps = True
    cupti.enable(CONCURRENT_KERNEL)
    graphs.replay(graph, LONG_NODES, LAST_LAUNCHES)
    late = graphs.captured(NODES)
    graphs.replay(late, NODES, LAST_LAUNCHES)
    cupti.close()
    _lengths, found = walk(cupti.buffers, [CONCURRENT_KERNEL])
    answer(
        switches=count,
        seconds=round(seconds, 2),
        answers=sorted(codes),
        kernels_per_second=round(replayed[0] * LONG_NODES / seconds),
        median_ms={name: round(sorted(costs)[len(costs) // 2], 3) for name, costs in costs_ms.items()},
        longest_ms={name: round(max(costs), 3) for name, costs in costs_ms.items()},
        bytes_while_switching=cupti.completed_bytes,
        records_after=len(found),
        kernels_after=LAST_LAUNCHES * (LONG_NODES + NODES),
        result_is_right=graphs.is_right(),
    )


_TURNS = (
    (("enable", CONCURRENT_KERNEL),),
    (("enable", SYNCHRONIZATION),),
    (("disable", SYNCHRONIZATION),),
    (("disable", CONCURRENT_KERNEL),),
)


def late(who: str) -> None:
    """A graph is captured and launched, then libcupti is loaded and kinds are enabled; answers by stage."""
    graphs = Graphs()
    graph = graphs.captured(NODES)
    graphs.replay(graph, NODES, 1)
    if who == "probe":
        with recorded(graphs.stream.synchronize) as records:
            graphs.replay(graph, NODES, LAUNCHES)
        seen = records.launches()
    else:
        cupti = RawCupti()
        cupti.enable(CONCURRENT_KERNEL)
        graphs.replay(graph, NODES, LAUNCHES)
        cupti.close()
        seen = len(walk(cupti.buffers, [CONCURRENT_KERNEL])[1])
    answer(records=seen, kernels=LAUNCHES * NODES, result_is_right=graphs.is_right())


def main() -> None:
    """Run the mode that the command line names."""
    if sys.argv[1] == "late":
        late(sys.argv[2])
    elif sys.argv[1] == "whole":
        whole(sys.argv[2])
    else:
        switches(int(sys.argv[2]))
    os._exit(0)  # CUPTI's threads must not call into an interpreter that ends


if __name__ == "__main__":
    main()
