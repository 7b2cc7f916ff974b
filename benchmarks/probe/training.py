"""Small PyTorch trainings on a CPU: `python training.py PROGRAM STEPS` prints steps and their processor time as JSON.

`plain` and the trainers know nothing of any tool; `plain_traceml` is `plain` with the lines that TraceML asks of it.
The time is that of the training's own thread a step, in the least of its blocks of 50 steps but the first.
"""
# ruff: noqa: PLC0415  each program imports its framework alone

import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
PROGRAM, STEPS = sys.argv[1], int(sys.argv[2])
BATCH, BLOCK = 8, 50
DATA = TensorDataset(torch.randn(STEPS * BATCH, 64), torch.randn(STEPS * BATCH, 1))


class Clock:
    """Counts steps, and times each block of them."""

    def __init__(self) -> None:
        self.steps = 0
        self.ends: list[float] = []

    def step(self) -> None:
        """A step has ended."""
        self.steps += 1
        if self.steps % BLOCK == 0:
            self.ends.append(time.thread_time())
        if self.steps == STEPS:
            least = min(end - begin for begin, end in pairwise(self.ends))
            print(json.dumps({"steps": STEPS, "thread_us": 1e6 * least / BLOCK}))


def network() -> nn.Module:
    """A small network."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))


def plain(clock: Clock, around: Callable[[Any], AbstractContextManager[Any]] = lambda _model: nullcontext()) -> None:
    """Train with a loop."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for inputs, targets in DataLoader(DATA, batch_size=BATCH):
        with around(model):
            optimizer.zero_grad()
            (model(inputs) - targets).square().mean().backward()
            optimizer.step()
        clock.step()


def plain_traceml(clock: Clock) -> None:
    """The same with TraceML's lines."""
    import traceml_ai

    traceml_ai.init(mode="auto")
    plain(clock, traceml_ai.trace_step)


def lightning(clock: Clock) -> None:
    """Train with Lightning."""
    import lightning as pl

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Model(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def training_step(self, batch: Any, _number: int) -> Any:
            return (self.network(batch[0]) - batch[1]).square().mean()

        def on_train_batch_end(self, *_told: Any) -> None:
            clock.step()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.001)

    quiet = {
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "logger": False,
    }
    pl.Trainer(max_epochs=1, accelerator="cpu", **quiet).fit(Model(), DataLoader(DATA, batch_size=BATCH))


def hugging_face(clock: Clock) -> None:
    """Train with Hugging Face's Trainer."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Model(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
            return {"loss": (self.network(x) - labels).square().mean()}

    class Counts(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_told: Any, **_named: Any) -> None:
            clock.step()

    rows = [{"x": inputs, "labels": target} for inputs, target in DATA]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=BATCH,
            num_train_epochs=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        Trainer(Model(), arguments, train_dataset=rows, callbacks=[Counts()]).train()


if __name__ == "__main__":
    programs: dict[str, Callable[[Clock], None]] = {
        "plain": plain,
        "plain_traceml": plain_traceml,
        "lightning": lightning,
        "hugging_face": hugging_face,
    }
    programs[PROGRAM](Clock())
