"""Compiled programs, with marks or without: `python compiled.py off|early|late|timed`.

Prints what `torch.compile` has done, the losses, and the steps that were counted. `late` starts the probe after
`torch.compile` has been imported; `timed` times as many steps as can be on a double of `torch.cuda`.
"""

import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kernelcast import probe
from kernelcast.probe.marks.gpu_phases import GpuPhases

(STARTED,) = sys.argv[1:]
RUNNING = probe.start("compiled", source="cpu", method="manual") if STARTED in {"early", "timed"} else None


class Event:
    """A CUDA event, which is done at once."""

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        """Do nothing."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, _end: "Event") -> float:
        return 1.0


CUDA = SimpleNamespace(
    is_initialized=lambda: True,
    is_current_stream_capturing=lambda: False,
    current_device=lambda: 0,
    set_device=lambda _device: None,
    Event=Event,
)

import torch  # noqa: E402
import torch._dynamo  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

if STARTED == "late":
    RUNNING = probe.start("compiled", source="cpu", method="manual")
TIMED = None
if RUNNING and STARTED == "timed":
    modules = {"torch": SimpleNamespace(cuda=CUDA)}
    TIMED = GpuPhases(RUNNING.recorder.progress, modules, lambda: (0,), lambda: None)
torch.manual_seed(0)
MODEL = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.001, momentum=0.9)
compiled = torch.compile(backend="eager")


def loss_of(inputs: Any) -> Any:
    return MODEL(inputs).square().mean()


def whole(inputs: Any) -> Any:
    loss = loss_of(inputs)
    loss.backward()
    OPTIMIZER.step()
    OPTIMIZER.zero_grad()
    return loss


def with_gradients(inputs: Any) -> Any:
    loss = loss_of(inputs)
    for parameter, gradient in zip(
        MODEL.parameters(), torch.autograd.grad(loss, list(MODEL.parameters())), strict=True
    ):
        parameter.grad = gradient
    OPTIMIZER.step()
    return loss


def around(step: Callable[[], Any], model: Callable[[Any], Any] = loss_of) -> Callable[[Any], Any]:
    def train(inputs: Any) -> Any:
        loss = model(inputs)
        OPTIMIZER.zero_grad()
        loss.backward()
        step()
        return loss

    return train


def evaluated(inputs: Any) -> Any:
    with torch.no_grad():
        return loss_of(inputs)


def over_loader(inputs: Any) -> Any:
    for batch in DataLoader(list(inputs), batch_size=3):
        loss = whole(batch)
    return loss


def after_evaluation() -> Callable[[Any], Any]:
    evaluate = torch.compile(evaluated, backend="eager", fullgraph=True)

    def train(inputs: Any) -> Any:
        evaluate(inputs)
        return whole(inputs)

    return train


CASES: dict[str, Callable[[], Callable[[Any], Any]]] = {
    "model": lambda: around(OPTIMIZER.step, torch.compile(loss_of, backend="eager", fullgraph=True)),
    "optimizer": lambda: around(torch.compile(OPTIMIZER.step, backend="eager")),
    "function": lambda: around(compiled(lambda: OPTIMIZER.step())),  # noqa: PLW0108  the call is what is compiled
    "whole": lambda: compiled(whole),
    "gradients": lambda: compiled(with_gradients),
    "evaluation": after_evaluation,
    "loader": lambda: compiled(over_loader),
}

counters = torch._dynamo.utils.counters
found = {}
for name, make in CASES.items():
    torch._dynamo.reset()
    counters.clear()
    progress = RUNNING.recorder.progress if RUNNING else None
    before = (progress.steps, progress.compilations) if progress else (0, 0)
    step = make()
    losses = []
    for _ in range(6):
        if TIMED:
            TIMED()
        losses.append(step(torch.randn(3, 4)).item())
    found[name] = {
        "compiler": {kind: dict(counters[kind]) for kind in ("frames", "stats", "graph_break")},
        "losses": losses,
        "steps": progress.steps - before[0] if progress else None,
        "compilations": progress.compilations - before[1] if progress else None,
    }
if TIMED:
    assert TIMED().steps > len(CASES), "steps were to be timed"
sys.stdout.write(json.dumps(found))
