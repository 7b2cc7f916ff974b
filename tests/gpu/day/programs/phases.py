"""A plain PyTorch loop whose phases are timed on the GPU: `phases times`, `… cost`, `… graph`, `… plain`.

The code of the loop knows nothing of the probe. `times` compares the probe's events with events of this program at the
same places of the same steps; `cost` trains with a timed step after a timed step, and without, by turns; `graph`
captures the whole step while a thread asks for events; `plain` trains below the probe, alone.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from tests.gpu.day.programs.kernels import answer, median

from kernelcast.probe.marks.gpu_phases import GpuPhases
from kernelcast.probe.marks.process import marks
from kernelcast.probe.process.driver import active_devices

WIDTH, LAYERS, BATCH = 2048, 6, 512
STEPS = 400
EVERY = 4
"""Steps between two that are timed in `times`: the second step after a report is."""
BLOCK, ROUNDS = 100, 9
CAPTURES, REPLAYS = 10, 20
PLAIN_SECONDS = 12.0
ASK_SECONDS = 0.002


class Loop:
    """The model, its optimizer and the loop over batches."""

    def __init__(self) -> None:
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        self.torch = torch
        torch.manual_seed(0)
        layers = [layer for _ in range(LAYERS) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
        self.net = torch.nn.Sequential(*layers).cuda()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-4)
        self._loader = DataLoader(TensorDataset(torch.randn(BATCH * 16, WIDTH)), batch_size=BATCH)
        self._own: dict[str, tuple[Any, Any]] = {}

    def batches(self) -> Iterator[Any]:
        """Yield batches without end; the loader's wait is between the events `data`."""
        while True:
            iterator = iter(self._loader)
            for _ in range(len(self._loader)):
                with self._around("data"):
                    (batch,) = next(iterator)
                yield batch

    def step(self, batch: Any) -> Any:
        """Train one step on a batch."""
        with self._around("forward"):
            loss = self.net(batch.cuda()).square().mean()
        with self._around("backward"):
            loss.backward()
        with self._around("optimizer"):
            self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def record(self, names: tuple[str, ...]) -> None:
        """Record own events around these parts of the next step."""
        event = self.torch.cuda.Event
        self._own = {name: (event(enable_timing=True), event(enable_timing=True)) for name in names}

    def recorded_ns(self) -> dict[str, float]:
        """Return the GPU's time between the own events; the GPU has come to them."""
        return {name: 1e6 * begin.elapsed_time(end) for name, (begin, end) in self._own.items()}

    @contextmanager
    def _around(self, name: str) -> Iterator[None]:
        begin, end = self._own.get(name, (None, None))
        if begin is not None:
            begin.record()
        yield
        if end is not None:
            end.record()


def _marked() -> tuple[Loop, GpuPhases]:
    """Return a loop whose steps are marked, without a probe."""
    marks.watch()
    loop = Loop()
    batches = loop.batches()
    for _ in range(10):
        loop.step(next(batches))
    loop.torch.cuda.synchronize()
    assert marks.timeline is not None, "torch is imported"
    return loop, GpuPhases(marks.timeline.totals, sys.modules, active_devices)


@contextmanager
def _asked(report: GpuPhases, pause_seconds: float) -> Iterator[None]:
    """Ask for reports on a thread, as the probe's thread does."""
    ends = threading.Event()

    def ask() -> None:
        while not ends.wait(pause_seconds):
            report()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def times() -> None:
    """Nanoseconds of each phase in the same steps, by the probe's events and by own ones."""
    loop, report = _marked()
    names = ("data", "forward", "backward", "optimizer")
    own = dict.fromkeys(names, 0.0)
    batches, timed = loop.batches(), 0
    report()
    for number in range(STEPS):
        loop.record(names if number % EVERY == 1 else ())
        loop.step(next(batches))
        if number % EVERY == 1:
            timed += 1
            loop.torch.cuda.synchronize()
            for name, took_ns in loop.recorded_ns().items():
                own[name] += took_ns
        if number % EVERY == EVERY - 1:
            loop.torch.cuda.synchronize()
            report()
    loop.torch.cuda.synchronize()
    steps, phases = report()
    answer(steps=steps, own_steps=timed, phases=dict(phases), own=own)


def cost() -> None:
    """Thread and wall time of a step with one timed step after another, and without, by turns."""
    loop, report = _marked()
    batches = loop.batches()
    found: dict[str, list[tuple[float, float, int]]] = {"off": [], "timed": []}
    for number in range(2 * ROUNDS):
        way = "timed" if number % 2 else "off"
        with _asked(report, ASK_SECONDS) if way == "timed" else nullcontext():
            before, began, wall = report.steps, time.thread_time(), time.perf_counter()
            for _ in range(BLOCK):
                loop.step(next(batches))
            used = time.thread_time() - began
            loop.torch.cuda.synchronize()
            took = time.perf_counter() - wall
        found[way].append((1e6 * used / BLOCK, 1e6 * took / BLOCK, report.steps - before))
    thread_us, wall_us = ({way: [row[i] for row in rows] for way, rows in found.items()} for i in (0, 1))
    timed = sum(row[2] for row in found["timed"])
    answer(
        steps=BLOCK * ROUNDS,
        timed_steps=timed,
        thread_us={way: round(median(values), 2) for way, values in thread_us.items()},
        least_thread_us={way: round(min(values), 2) for way, values in thread_us.items()},
        wall_us={way: round(median(values), 2) for way, values in wall_us.items()},
    )


def graph() -> None:
    """Capture a training step ten times while a thread asks for events that are on their way; replay the last one."""
    loop, report = _marked()
    torch = loop.torch
    batches = loop.batches()
    static = torch.randn(BATCH, WIDTH, device="cuda")

    def moved() -> float:
        return float(sum((value - start[name]).abs().sum() for name, value in loop.net.state_dict().items()))

    def train() -> None:
        loop.optimizer.zero_grad(set_to_none=True)
        loop.net(static).square().mean().backward()
        loop.optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            train()
    torch.cuda.current_stream().wait_stream(side)
    start = {name: value.clone() for name, value in loop.net.state_dict().items()}
    with _asked(report, 0.0):
        for _ in range(CAPTURES):
            for _ in range(4):
                loop.step(next(batches))  # events of these are on their way
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured):
                train()
    timed = report.steps
    for _ in range(10):
        loop.step(next(batches))
        torch.cuda.synchronize()
        report()
    loop.net.load_state_dict(start)
    for _ in range(REPLAYS):
        captured.replay()
    replayed = moved()
    loop.net.load_state_dict(start)
    for _ in range(REPLAYS):
        train()
    answer(
        captures=CAPTURES,
        timed_steps=timed,
        timed_afterwards=report.steps - timed,
        replayed=replayed,
        eager=moved(),
    )


def plain() -> None:
    """Train for some seconds; returns the steps and their mean time after the first."""
    loop = Loop()
    batches, steps, end = loop.batches(), 0, time.monotonic() + PLAIN_SECONDS
    loop.step(next(batches))
    loop.torch.cuda.synchronize()
    began = time.perf_counter()
    while time.monotonic() < end:
        loop.step(next(batches))
        steps += 1
        if steps % 20 == 0:
            loop.torch.cuda.synchronize()
    loop.torch.cuda.synchronize()
    answer(steps=steps, step_seconds=(time.perf_counter() - began) / steps)


if __name__ == "__main__":
    {"times": times, "cost": cost, "graph": graph, "plain": plain}[sys.argv[1]]()
