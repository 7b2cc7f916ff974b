"""Training loops in plain PyTorch: each returns the steps it has made. Prints them beside the counted ones."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from kernelcast import probe

DATA = TensorDataset(torch.randn(24, 4), torch.randn(24, 1))
LOOPS: dict[str, Callable[[], int]] = {}


def loop(function: Callable[[], int]) -> Callable[[], int]:
    LOOPS[function.__name__] = function
    return function


def parts(kind: Any = torch.optim.SGD) -> tuple[nn.Module, Any]:
    model = nn.Linear(4, 1)
    return model, kind(model.parameters(), lr=0.01)


def loss_of(model: nn.Module, batch: Any) -> torch.Tensor:
    inputs, targets = batch
    loss: torch.Tensor = (model(inputs) - targets).square().mean()
    return loss


def train(model: nn.Module, optimizer: Any, batches: Any) -> int:
    steps = 0
    for batch in batches:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
        steps += 1
    return steps


@loop
def without_a_loader() -> int:
    return train(*parts(), ((torch.randn(4, 4), torch.randn(4, 1)) for _ in range(7)))


@loop
def plain() -> int:
    return sum(train(*parts(), DataLoader(DATA, batch_size=4)) for _ in range(2))


@loop
def accumulation() -> int:
    model, optimizer = parts()
    for number, batch in enumerate(DataLoader(DATA, batch_size=4)):
        loss_of(model, batch).backward()
        if number % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
    return 2


@loop
def fetched_ahead() -> int:
    model, optimizer = parts()
    batches = iter(DataLoader(DATA, batch_size=4))
    for _ in range(3):
        for batch in [next(batches), next(batches)]:
            loss_of(model, batch).backward()
        optimizer.step()
        optimizer.zero_grad()
    return 3


@loop
def two_optimizers() -> int:
    (first, steps_first), (second, steps_second) = parts(), parts(torch.optim.Adam)
    for batch in DataLoader(DATA, batch_size=4):
        loss_of(first, batch).backward()
        steps_first.step()
        loss_of(second, batch).backward()
        steps_second.step()
    return 6 + train(second, steps_second, DataLoader(DATA, batch_size=4))


@loop
def closure() -> int:
    model, optimizer = parts(torch.optim.LBFGS)
    for batch in DataLoader(DATA, batch_size=4):

        def evaluate(batch: Any = batch) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            return loss

        optimizer.step(evaluate)
    return 6


@loop
def scaler() -> int:
    model, optimizer = parts()
    scales = torch.amp.GradScaler("cpu")
    for number, batch in enumerate(DataLoader(DATA, batch_size=4)):
        optimizer.zero_grad()
        scales.scale(loss_of(model, batch) * (float("inf") if number == 2 else 1.0)).backward()
        scales.step(optimizer)
        scales.update()
    return 6


@loop
def iterable_dataset() -> int:
    class Numbers(IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            return iter([(torch.randn(4), torch.randn(1)) for _ in range(10)])

    return train(*parts(), DataLoader(Numbers(), batch_size=4))


@loop
def persistent_workers() -> int:
    loader = DataLoader(DATA, batch_size=4, num_workers=1, persistent_workers=True)
    model, optimizer = parts()
    return train(model, optimizer, loader) + train(model, optimizer, loader)


@loop
def in_another_thread() -> int:
    made: list[int] = []
    thread = threading.Thread(target=lambda: made.append(plain()))
    thread.start()
    thread.join()
    return made[0]


@loop
def each_step_in_another_thread() -> int:
    model, optimizer = parts()
    steps = train(model, optimizer, DataLoader(DATA, batch_size=4))
    for batch in DataLoader(DATA, batch_size=4):
        thread = threading.Thread(target=train, args=(model, optimizer, [batch]))
        thread.start()
        thread.join()
    return steps + 6


@loop
def fused_into_backward() -> int:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.01) for parameter in model.parameters()}

    def step(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    for batch in DataLoader(DATA, batch_size=4):
        loss_of(model, batch).backward()
    return 6


class Louder(torch.optim.Adam):  # type: ignore[misc]
    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


@loop
def subclass_that_calls_super() -> int:
    train(*parts(torch.optim.Adam), [])
    return train(*parts(Louder), DataLoader(DATA, batch_size=4))


@loop
def autograd_grad() -> int:
    model, optimizer = parts()
    for batch in DataLoader(DATA, batch_size=4):
        for parameter, gradient in zip(
            model.parameters(), torch.autograd.grad(loss_of(model, batch), list(model.parameters())), strict=True
        ):
            parameter.grad = gradient
        optimizer.step()
    return 6


@loop
def an_optimizer_that_fails_and_goes_on() -> int:
    class Failing(torch.optim.SGD):  # type: ignore[misc]
        fails = True

        def step(self, closure: Any = None) -> Any:
            if self.fails:
                raise ZeroDivisionError
            return super().step(closure)

    model, optimizer = parts(Failing)
    try:
        train(model, optimizer, DataLoader(DATA, batch_size=4))
    except ZeroDivisionError:
        optimizer.fails = False
    return train(model, optimizer, DataLoader(DATA, batch_size=4))


@loop
def evaluation_between_steps() -> int:
    model, optimizer = parts()
    steps = 0
    for _ in range(2):
        steps += train(model, optimizer, DataLoader(DATA, batch_size=4))
        with torch.no_grad():
            for batch in DataLoader(DATA, batch_size=8):
                loss_of(model, batch)
        for batch in DataLoader(DATA, batch_size=8):
            with torch.inference_mode():
                loss_of(model, batch)
    return steps


def main() -> None:
    running = probe.start("loops", source="cpu", method="manual")
    if len(sys.argv) > 1:
        torch.set_num_threads(1)
    found = {}
    for name, function in LOOPS.items():
        progress = running.recorder.progress
        steps, items, skipped, phases = progress.steps, progress.items, progress.skipped, dict(progress.phases())
        made = function()
        found[name] = {
            "made": made,
            "steps": progress.steps - steps,
            "items": progress.items - items,
            "skipped": progress.skipped - skipped,
            "phases": sorted(phase for phase, ns in progress.phases() if ns > phases.get(phase, 0)),
        }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
