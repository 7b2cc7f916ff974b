"""A healthy program that does something that takes long: `python healthy.py WHAT FOLDER`.

It trains until it is killed, and does it after each five minutes. It leaves a file named after itself in FOLDER when it
has come back from it, or is about to begin what never ends.
"""

import code
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from kernelcast import probe

WHAT, FOLDER = sys.argv[1], Path(sys.argv[2])
MINUTE: Final = 60.0
BATCH_SECONDS: Final = 0.2


class Numbers(IterableDataset):  # type: ignore[misc]
    """Samples without an end."""

    def __iter__(self) -> Iterator[Any]:
        for number in itertools.count():
            yield torch.randn(8), torch.tensor([float(number % 2)])


class Large:
    """An object whose checkpoint takes three minutes."""

    def __reduce__(self) -> Any:
        time.sleep(3 * MINUTE)
        return int, ()


def compiled_slowly(graph: Any, _inputs: Any) -> Any:
    """A compiler that takes eight minutes."""
    time.sleep(8 * MINUTE)
    return graph.forward


def evaluate(model: nn.Module) -> None:
    """Evaluate for ten minutes, in 120 batches."""
    with torch.no_grad():
        for inputs, _ in itertools.islice(DataLoader(Numbers(), batch_size=4), 120):
            model(inputs)
            time.sleep(MINUTE / 12)


def train(model: nn.Module, seconds: float, *, accumulated_seconds: float = 0.0) -> None:
    """Train for a time: an epoch. An optimizer's step comes after as many batches as take `accumulated_seconds`."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    began = stepped = time.monotonic()
    for inputs, targets in DataLoader(Numbers(), batch_size=4):
        (model(inputs) - targets).square().mean().backward()
        now = time.monotonic()
        if now - stepped >= accumulated_seconds:
            optimizer.step()
            optimizer.zero_grad()
            stepped = now
        if now - began >= seconds:
            return
        time.sleep(BATCH_SECONDS)


DOES: Final[dict[str, Callable[[nn.Module], object]]] = {
    "evaluation": evaluate,
    "checkpoint": lambda _model: torch.save({"state": Large()}, FOLDER / f"large-{os.getpid()}"),
    "compilation": lambda model: torch.compile(model, backend=compiled_slowly)(torch.randn(4, 8)),
    "notebook": lambda _model: code.interact(),
    "epoch": lambda _model: time.sleep(0.9 * MINUTE),
    "accumulation": lambda model: train(model, 10 * MINUTE, accumulated_seconds=1.2 * MINUTE),
    "person": lambda _model: input("Go on? "),
    "steps": lambda _model: None,
}
LASTS: Final = frozenset({"notebook", "person"})


def main() -> None:
    torch.set_num_threads(1)
    probe.start(f"healthy-{WHAT}", source="cpu", method="manual")
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
    while True:
        train(model, 5 * MINUTE)
        if WHAT in LASTS:
            (FOLDER / f"{WHAT}-{os.getpid()}").touch()
        DOES[WHAT](model)
        (FOLDER / f"{WHAT}-{os.getpid()}").touch()


main()
