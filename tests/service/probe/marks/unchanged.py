"""What a program can see of PyTorch: `python unchanged.py off|on` prints types, signatures and tracebacks."""

import inspect
import json
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from kernelcast import probe

if sys.argv[1] == "on":
    probe.start("unchanged", source="cpu", method="manual")


class Broken(Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        if index == 3:
            raise KeyError(index)
        return torch.zeros(4)


class Failing(torch.optim.SGD):  # type: ignore[misc]
    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        raise ZeroDivisionError


class Refused:
    def __reduce__(self) -> Any:
        raise TypeError


def lines(work: Callable[[], object]) -> list[str]:
    try:
        work()
    except Exception as error:  # noqa: BLE001  each is shown
        return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)]
    return []


model = nn.Linear(4, 1)
optimizer = Failing(model.parameters(), lr=0.1)
torch.manual_seed(1)
weights = nn.Parameter(torch.ones(3))
plain = torch.optim.Adam([weights], lr=0.1)
for _ in range(5):
    plain.zero_grad()
    (weights * torch.randn(3)).square().sum().backward()
    plain.step()
functions = [torch.autograd.backward, torch.autograd.grad, torch.save, torch.optim.Adam.step, torch.no_grad.__enter__]
sys.stdout.write(
    json.dumps(
        {
            "tracebacks": [
                lines(lambda: list(DataLoader(Broken()))),
                lines(lambda: torch.ones(2, requires_grad=True).backward()),
                lines(lambda: torch.autograd.grad(torch.ones(1), torch.ones(1))),
                lines(optimizer.step),
                lines(lambda: optimizer.step(lambda: 1 / 0)),
                lines(lambda: torch.save(Refused(), "/dev/null")),
            ],
            "types": [
                type(one).__name__ for one in (*functions, iter(DataLoader(Broken())), optimizer, optimizer.step)
            ],
            "names": [f"{one.__module__}.{one.__qualname__}" for one in functions],
            "signatures": [str(inspect.signature(one)) for one in functions],
            "documentation": [one.__doc__ for one in functions],
            "pickled": [
                pickle.loads(pickle.dumps(one)) is one  # noqa: S301  its own bytes
                for one in functions[:3]
            ],
            "weights": weights.tolist(),
        }
    )
)
