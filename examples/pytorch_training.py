"""A PyTorch training loop: parts of it as regions, and a batch size on which all ranks agree.

    KERNELCAST_CUPTI=1 python examples/pytorch_training.py --epochs 3
    KERNELCAST_CUPTI=1 torchrun --nproc-per-node 8 examples/pytorch_training.py

With KERNELCAST_CUPTI=1 the probe sees every kernel, copy and collective; without it, regions only. The rank comes from
torchrun.
"""

import argparse
import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from kernelcast import probe

BATCHES = 20
FEATURES = 256


def main(arguments: list[str] | None = None) -> None:
    """Train for some epochs."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    epochs = parser.parse_args(arguments).epochs

    on_gpu = torch.cuda.is_available()
    device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if on_gpu else "cpu")
    if "RANK" in os.environ:
        dist.init_process_group()
    probe.start("pytorch-training", source="" if on_gpu else "cpu")
    # The batch size must be the same everywhere, so the ranks change it together.
    together: dict[str, Any] = {"scope": "collective", "group": dist.group.WORLD} if dist.is_initialized() else {}
    batch_size = probe.tunable("batch_size", [32, 64, 128], 64, granularity="epoch", **together)
    model = nn.Sequential(nn.Linear(FEATURES, 512), nn.ReLU(), nn.Linear(512, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = torch.zeros(())
    for epoch in range(epochs):
        for batch in range(BATCHES):
            with probe.region("data"):
                inputs = torch.randn(batch_size.value, FEATURES).to(device)
            with probe.region("forward"):
                loss = model(inputs).square().mean()
            with probe.region("backward"):
                optimizer.zero_grad()
                loss.backward()
            with probe.region("optimizer"):
                optimizer.step()
            probe.step(epoch=batch == BATCHES - 1)  # batch_size.value may change at the end of an epoch
        print(f"epoch {epoch}: loss {loss.item():.4f}, batch size {batch_size.value}")
    probe.stop()
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
