"""A plain loop that knows nothing of the probe: `python one_loop.py` prints the steps it has made."""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

DATA = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
steps = 0
for _ in range(5):
    for inputs, targets in DataLoader(DATA, batch_size=8):
        loss = (model(inputs) - targets).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
sys.stdout.write(f"{steps}\n")
