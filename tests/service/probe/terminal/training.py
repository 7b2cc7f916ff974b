"""A plain PyTorch loop that knows nothing of the probe: `python training.py EPOCHS WORKERS`; prints its steps."""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


def main(epochs: int, workers: int) -> int:
    """Train; returns the number of steps."""
    data = TensorDataset(torch.randn(256, 64), torch.randn(256, 1))
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps = 0
    for _ in range(epochs):
        for inputs, targets in DataLoader(data, batch_size=8, num_workers=workers):
            optimizer.zero_grad()
            ((model(inputs) - targets) ** 2).mean().backward()
            optimizer.step()
            steps += 1
    return steps


if __name__ == "__main__":
    sys.stdout.write(f"{main(int(sys.argv[1]), int(sys.argv[2]))}\n")
