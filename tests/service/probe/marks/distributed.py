"""Data-parallel training on two ranks, with accumulation: rank 0 prints the steps made and the steps counted."""

import contextlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from kernelcast import probe

running = probe.start("distributed", source="cpu", method="manual")
dist.init_process_group("gloo")
DATA = TensorDataset(torch.randn(40, 4), torch.randn(40, 1))


def train(model: Any, optimizer: Any, alone: Callable[[], Any]) -> dict[str, int]:
    progress = running.recorder.progress
    steps, items, made = progress.steps, progress.items, 0
    for number, (inputs, targets) in enumerate(DataLoader(DATA, batch_size=4)):
        together = number % 2 == 1
        with contextlib.nullcontext() if together else alone():
            (model(inputs) - targets).square().mean().backward()
        if together:
            optimizer.step()
            optimizer.zero_grad()
            made += 1
    return {"made": made, "steps": progress.steps - steps, "items": progress.items - items}


def replicated() -> Any:
    return DistributedDataParallel(nn.Linear(4, 1))


ddp, zero, fsdp = replicated(), replicated(), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
fully_shard(fsdp)
found = {
    "ddp": train(ddp, torch.optim.SGD(ddp.parameters(), lr=0.01), ddp.no_sync),
    "fsdp2": train(fsdp, torch.optim.Adam(fsdp.parameters(), lr=0.01), contextlib.nullcontext),
    "zero": train(zero, ZeroRedundancyOptimizer(zero.parameters(), torch.optim.SGD, lr=0.01), zero.no_sync),
}
if dist.get_rank() == 0:
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
running.stop()
dist.barrier()
os._exit(0)  # gloo's threads drop tensors while the interpreter ends, which aborts 1 process in 30 (PyTorch 179291)
