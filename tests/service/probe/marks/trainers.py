"""Trainers of other projects: `python trainers.py NAME FOLDER` prints the steps made and the steps counted."""

import json
import logging
import sys
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from kernelcast import probe

NAME, FOLDER = sys.argv[1:]
running = probe.start("trainers", source="cpu", method="manual")
DATA = TensorDataset(torch.randn(40, 4), torch.randn(40, 1))


def hugging_face() -> int:
    from transformers import Trainer, TrainingArguments

    class Model(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
            found = self.layer(x)
            return {"loss": (found - labels).square().mean(), "logits": found}

    rows = [{"x": inputs, "labels": target} for inputs, target in DATA]
    arguments = TrainingArguments(
        FOLDER,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=2,
        num_train_epochs=2,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(Model(), arguments, train_dataset=rows, eval_dataset=rows)
    trainer.train()
    return int(trainer.state.global_step)


def lightning(*, manual: bool = False, accumulated: int = 1) -> int:
    import lightning as pl

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Model(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = not manual
            self.layer = nn.Linear(4, 1)

        def loss(self, batch: Any) -> Any:
            return (self.layer(batch[0]) - batch[1]).square().mean()

        def training_step(self, batch: Any, _number: int) -> Any:
            if not manual:
                return self.loss(batch)
            for optimizer in self.optimizers():
                optimizer.zero_grad()
                self.manual_backward(self.loss(batch))
                optimizer.step()
            return None

        def validation_step(self, batch: Any, _number: int) -> None:
            self.loss(batch)

        def configure_optimizers(self) -> Any:
            kinds = [torch.optim.Adam, torch.optim.SGD] if manual else [torch.optim.Adam]
            return [kind(self.parameters(), lr=0.01) for kind in kinds]

    trainer = pl.Trainer(
        max_epochs=2,
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        accumulate_grad_batches=accumulated,
        default_root_dir=FOLDER,
    )
    trainer.fit(Model(), DataLoader(DATA, batch_size=4), DataLoader(DATA, batch_size=4))
    return int(trainer.global_step) // (2 if manual else 1)  # Lightning counts each optimizer's


def accelerate() -> int:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, batches = accelerator.prepare(model, optimizer, DataLoader(DATA, batch_size=4))
    for _ in range(4):
        for inputs, targets in batches:
            with accelerator.accumulate(model):
                accelerator.backward((model(inputs) - targets).square().mean())
                optimizer.step()
                optimizer.zero_grad()
    accelerator.save(model.state_dict(), f"{FOLDER}/model.pt")
    return 20


PROGRAMS = {
    "hugging_face": hugging_face,
    "lightning": lightning,
    "lightning_accumulated": lambda: lightning(accumulated=2),
    "lightning_manual": lambda: lightning(manual=True),
    "accelerate": accelerate,
}
made = PROGRAMS[NAME]()
progress = running.recorder.progress
phases = dict(progress.phases())
sys.stdout.write(json.dumps({"made": made, "steps": progress.steps, "items": progress.items, "phases": sorted(phases)}))
