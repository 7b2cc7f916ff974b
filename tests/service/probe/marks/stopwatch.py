"""Phases beside a stopwatch at their borders, or the cost of the marks: `python stopwatch.py phases|costs`.

Busy parts of 2 ms; a phase's error is the median over the steps. The cost is the thread's time, the least of 14 blocks.
"""

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from time import perf_counter_ns as now
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from kernelcast import probe
from kernelcast.wire.frames import PHASES

torch.set_num_threads(1)
STEPS, CALLS, BLOCKS = 120, 1_000, 14


def busy(microseconds: int = 2_000) -> None:
    end = now() + 1_000 * microseconds
    while now() < end:
        pass


class Rows(Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, _index: int) -> Any:
        busy()
        return torch.zeros(4)


class Work(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(_context: Any, inputs: Any) -> Any:
        busy()
        return inputs.clone()

    @staticmethod
    def backward(_context: Any, gradients: Any) -> Any:
        busy()
        return gradients


class Slow(torch.optim.SGD):  # type: ignore[misc]
    def step(self, closure: Any = None) -> Any:
        busy()
        return super().step(closure)


class Ready(_BaseDataLoaderIter):  # type: ignore[misc]
    """A loader's iterator whose batch is there."""

    def __init__(self) -> None:
        self._sampler_iter, self._num_yielded, self._dataset_kind, self._profile_name = 1, 0, 0, "ready"
        self._auto_collation, self._index_sampler = True, self
        self.batch_size = 8
        self._batch = [torch.zeros(8, 4), torch.zeros(8)]

    def _next_data(self) -> Any:
        return self._batch


class Nothing(torch.optim.Optimizer):  # type: ignore[misc]
    def step(self, closure: Any = None) -> Any:
        return closure


def least_ns(work: Callable[[], object]) -> float:
    blocks = []
    for _ in range(BLOCKS):
        began = time.thread_time_ns()
        for _ in range(CALLS):
            work()
        blocks.append(time.thread_time_ns() - began)
    return min(blocks) / CALLS


def costs() -> tuple[float, float]:
    ready, optimizer = Ready(), Nothing([nn.Parameter(torch.zeros(1))], {})

    def step() -> None:
        next(ready)
        torch.autograd.backward(None)
        optimizer.step()

    return least_ns(step), least_ns(ready.__next__)


def measured_costs() -> dict[str, float]:
    """What the marks add to a step and to a batch, in nanoseconds."""
    torch.autograd.backward = lambda _tensors: None
    without = costs()
    probe.start("stopwatch", source="cpu", method="manual")
    step, batch = (after - before for before, after in zip(without, costs(), strict=True))
    return {"step": step, "batch": batch}


def measured_phases() -> dict[str, list[float]]:
    """Of each phase and of the step: the stopwatch's median, and the median of the differences to it."""
    running = probe.start("stopwatch", source="cpu", method="manual")
    model = nn.Linear(4, 1)
    optimizer = Slow(model.parameters(), lr=0.01)
    batches = iter(DataLoader(Rows(), batch_size=1))
    progress, rows = running.recorder.progress, []
    before, ended, counted_ns = dict.fromkeys(PHASES, 0), 0, 0
    for _ in range(STEPS):
        times = [now()]
        batch = next(batches)
        times.append(now())
        loss = Work.apply(model(batch)).sum()
        times.append(now())
        loss.backward()
        times.append(now())
        busy()
        times.append(now())
        optimizer.step()
        times.append(now())
        fetch, forward, backward, other, update = (after - begin for begin, after in itertools.pairwise(times))
        watch = {"data": fetch, "forward": forward, "backward": backward, "optimizer": update}
        watch |= {"other": other + times[0] - ended, "step": times[-1] - ended}
        phases = dict(zip(PHASES, progress.phase_ns, strict=True))
        found = {name: phases[name] - before[name] for name in phases} | {"step": progress.last_ns - counted_ns}
        rows.append({name: (watch[name], found[name] - watch[name]) for name in watch})
        before, ended, counted_ns = phases, times[-1], progress.last_ns
    return {name: [statistics.median(row[name][part] for row in rows[5:]) for part in (0, 1)] for name in rows[0]}


sys.stdout.write(json.dumps(measured_costs() if sys.argv[1] == "costs" else measured_phases()))
