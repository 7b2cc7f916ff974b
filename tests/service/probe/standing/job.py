"""One rank of a data-parallel job with a fault: `python job.py FAULT FOLDER`, rank and peers by torchrun's variables.

It trains until it is killed. From step `AT` on, rank 2 does what the fault says; `healthy` does nothing.
"""

import os
import sys
import time
from collections.abc import Iterator
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
AT: Final = 20
FOR_EVER: Final = 3600.0


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


def evaluate(model: nn.Module) -> None:
    with torch.no_grad():
        for number, (inputs, _) in enumerate(DataLoader(Numbers(), batch_size=4)):
            model(inputs)
            if number == 2:
                time.sleep(FOR_EVER)


def main() -> None:
    torch.set_num_threads(1)
    probe.start("standing", source="cpu", method="manual")
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (inputs, targets) in enumerate(DataLoader(Numbers(), batch_size=4)):
        if step == AT:
            (FOLDER / f"begun-{RANK}").touch()
        if is_faulty("asleep", step):
            time.sleep(FOR_EVER)
        if is_faulty("breakpoint", step):
            breakpoint()  # noqa: T100  the fault
        if is_faulty("slow", step):
            time.sleep(0.4)
        if is_faulty("evaluation", step):
            evaluate(model.module)
        if is_faulty("checkpoint", step):
            torch.save(model.module.state_dict(), FOLDER / "pipe", _use_new_zipfile_serialization=False)
        if is_faulty("checkpoint_in_native_code", step):  # it holds the interpreter's lock while it opens the file
            torch.save(model.module.state_dict(), FOLDER / "pipe")
        outputs = model(inputs)
        if is_faulty("mismatch", step):
            outputs = Held.apply(outputs)
        (outputs - targets).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)


main()
