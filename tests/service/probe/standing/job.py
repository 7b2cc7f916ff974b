"""One rank of a data-parallel job with a fault: `python job.py FAULT FOLDER [STEP]`, with torchrun's variables.

It trains until it is killed. From the step on, by default 20, rank 2 does what the fault says; with `healthy` it takes
`LONG_SECONDS` each for an evaluation, a checkpoint and a compilation from step `LATER` on, while its peers wait.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

from kernelcast import probe

FAULT, FOLDER = sys.argv[1], Path(sys.argv[2])
RANK: Final = int(os.environ["RANK"])
AT: Final = int(sys.argv[3]) if len(sys.argv) > 3 else 20
LATER: Final = 600
"""Once the exporter knows the program's gaps."""
FOR_EVER: Final = 3600.0
LONG_SECONDS: Final = 15.0


def is_faulty(fault: str, step: int) -> bool:
    """Whether this rank has the fault at this step."""
    return fault == FAULT and RANK == 2 and step >= AT


class Numbers(IterableDataset):  # type: ignore[misc]
    """Samples without an end."""

    def __iter__(self) -> Iterator[Any]:
        number = 0
        while True:
            if is_faulty("loader", number // 4 - 2):
                time.sleep(FOR_EVER)
            yield torch.randn(8), torch.randn(1)
            number += 1


class Held(torch.autograd.Function):  # type: ignore[misc]
    """Passes its input on, and enters another collective within backward."""

    @staticmethod
    def forward(_context: Any, inputs: Any) -> Any:
        return inputs.clone()

    @staticmethod
    def backward(_context: Any, gradient: Any) -> Any:
        dist.barrier()
        return gradient


class Large:
    """An object whose checkpoint takes long."""

    def __reduce__(self) -> Any:
        time.sleep(LONG_SECONDS)
        return int, ()


def compiled_slowly(graph: Any, _inputs: Any) -> Any:
    """A compiler that takes long."""
    time.sleep(LONG_SECONDS)
    return graph.forward


def work_long(model: nn.Module, step: int) -> None:
    """Do something healthy that takes longer than a step may."""
    if step == LATER:
        with torch.no_grad():
            model(torch.randn(4, 8))
            time.sleep(LONG_SECONDS)
    elif step == LATER + 5:
        torch.save({"state": Large()}, FOLDER / "large")
    elif step == LATER + 10:
        torch.compile(model, backend=compiled_slowly)(torch.randn(4, 8))
        (FOLDER / "done").touch()


def evaluate(model: nn.Module) -> None:
    with torch.no_grad():
        for number, (inputs, _) in enumerate(DataLoader(Numbers(), batch_size=4)):
            model(inputs)
            if number == 2:
                time.sleep(FOR_EVER)


def save(model: nn.Module, *, in_python: bool) -> None:
    """Save into a pipe that nobody reads; PyTorch's native code holds the interpreter's lock while it opens a file."""
    torch.save(model.state_dict(), FOLDER / "pipe", _use_new_zipfile_serialization=not in_python)


FAULTS: Final[dict[str, Callable[[nn.Module], object]]] = {
    "asleep": lambda _model: time.sleep(FOR_EVER),
    "breakpoint": lambda _model: breakpoint(),  # noqa: T100  the fault
    "slow": lambda _model: time.sleep(0.4),
    "evaluation": evaluate,
    "checkpoint": lambda model: save(model, in_python=True),
    "checkpoint_in_native_code": lambda model: save(model, in_python=False),
}


def main() -> None:
    torch.set_num_threads(1)
    probe.start("standing", source="cpu", method="manual")
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (inputs, targets) in enumerate(DataLoader(Numbers(), batch_size=4)):
        if step == AT:
            (FOLDER / f"begun-{RANK}").touch()
        if FAULT in FAULTS and is_faulty(FAULT, step):
            FAULTS[FAULT](model.module)
        outputs = model(inputs)
        if is_faulty("mismatch", step):
            outputs = Held.apply(outputs)
        (outputs - targets).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if is_faulty("healthy", step):
            work_long(model.module, step)
        time.sleep(0.02)


main()
