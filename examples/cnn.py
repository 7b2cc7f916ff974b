"""A small CNN, trained by several processes: steps, data waits and collectives of each rank, with three planted faults.

    python examples/cnn.py                                 # two ranks over gloo on the CPU
    python examples/cnn.py --workers 2 --bucket-mb 25      # with two of its three faults mended

Three faults are planted: the loader has no workers and starves the model, the buckets of gradients are 0.1 MB, and the
batch is small. `--threads 4` plants a fourth where there are fewer processors. Without a GPU all times are wall times
of the CPU, and all series have source="cpu". The probe is the only part of kernelcast that it needs; where there is no
exporter, it runs as without.

An epoch is short, because the loader and the buckets change between epochs only, and a trial takes 56 to 460 epochs.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, RandomSampler

from kernelcast import probe

SIDE = 32
CLASSES = 10
LAYERS = 8
STORAGE_SECONDS = 0.01
"""Wait for one sample, as of remote storage, so that a loader without workers starves the model."""


class Images:
    """Random images, each with a stripe at its label, and with a wait as of remote storage."""

    def __init__(self, samples: int) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        made = torch.Generator().manual_seed(index)
        label = index % CLASSES
        image = torch.randn(3, SIDE, SIDE, generator=made)
        image[:, label : label + 4, :] += 2.0
        time.sleep(STORAGE_SECONDS)
        return image, label


class Timed:
    """Wall time of a part of a step, reported as a launch of that name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._began_ns = time.perf_counter_ns()

    def __exit__(self, *_: object) -> None:
        probe.observe(self._name, time.perf_counter_ns() - self._began_ns)


def timed_all_reduce(group: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket of gradients over all ranks, and report the time until its result is there.

    It waits here. A callback would run on a thread of gloo, while the main thread forks the workers of the loader.
    """
    buffer = bucket.buffer().div_(dist.get_world_size())
    with Timed("all_reduce_gloo"):
        dist.all_reduce(buffer, group=group)
    averaged: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    averaged.set_result(buffer)
    return averaged


def model() -> nn.Module:
    """Two convolutions and many linear layers, so that gradients fill many small buckets or one large one."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 256),
        *(layer for _ in range(LAYERS) for layer in (nn.Linear(256, 256), nn.LayerNorm(256), nn.ReLU())),
        nn.Linear(256, CLASSES),
    )


def distributed(network: nn.Module, bucket_mb: float) -> DistributedDataParallel:
    """Wrap a network, so that all ranks average its gradients in buckets of a size. All ranks call it together."""
    wrapped = DistributedDataParallel(network, bucket_cap_mb=bucket_mb)
    wrapped.register_comm_hook(dist.group.WORLD, timed_all_reduce)
    return wrapped


class Batches:
    """The batches of the training. The loader and its processes stay until another value asks for another loader."""

    def __init__(self, samples: int) -> None:
        self._images = Images(samples)
        self._order = RandomSampler(self._images, generator=torch.Generator().manual_seed(dist.get_rank()))
        self._made: tuple[int, int] | None = None

    def epoch(self, batch: int, workers: int) -> Iterator[tuple[bool, torch.Tensor, torch.Tensor]]:
        """Yield the batches of one epoch, each with whether it is the last; the wait for each is the region `data`."""
        if self._made != (batch, workers):
            self._made = batch, workers
            self._loader = DataLoader(
                self._images, batch, sampler=self._order, num_workers=workers, drop_last=True,
                persistent_workers=workers > 0,
            )  # fmt: skip
        arriving, last = iter(self._loader), len(self._loader) - 1
        for number in range(last + 1):
            with probe.region("data"):
                images, labels = next(arriving)
            yield number == last, images, labels


class Tunables:
    """The parameters of the training that hints may change.

    Ranks wait for each other in every step, so a value of one rank alone would hardly change its time: all ranks change
    together. A batch size changes the results, so its hints wait for a person.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        together: dict[str, Any] = (
            {"scope": "collective", "group": dist.group.WORLD} if dist.get_world_size() > 1 else {}
        )
        epoch = {"granularity": "epoch", **together}
        self.workers = probe.tunable("loader_workers", [0, 1, 2, 4], options.workers, kind="loader_workers", **epoch)
        self.batch = probe.tunable(
            "batch", [8, 16, 32], options.batch, kind="batch_size", changes_results=True, **epoch
        )
        self.bucket_mb = probe.tunable(
            "bucket_mb", [0.1, 1.0, 5.0, 25.0], options.bucket_mb, kind="bucket_size", **epoch
        )
        self.threads = probe.tunable(
            "threads", [1, 2, 4], options.threads, kind="intra_op_threads", **(epoch if together else {})
        )

    def __str__(self) -> str:
        return (
            f"{self.workers.value} loader workers, {self.threads.value} threads, buckets of {self.bucket_mb.value:g} MB"
        )


def train(options: argparse.Namespace) -> NoReturn:
    """Train as one rank until the epochs or the time are over, and end the process."""
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count()) if on_gpu else torch.device("cpu")
    probe.start(options.program, source="" if on_gpu else "cpu", method="auto" if on_gpu else "manual")
    tunables, data = Tunables(options), Batches(options.samples)
    network = model().to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.02)
    bucket_mb = tunables.bucket_mb.value
    wrapped = distributed(network, bucket_mb)
    ends = time.monotonic() + options.seconds if options.seconds else float("inf")
    for epoch in range(options.epochs):
        if bucket_mb != tunables.bucket_mb.value:
            bucket_mb = tunables.bucket_mb.value
            del wrapped
            wrapped = distributed(network, bucket_mb)
        train_epoch(data, epoch, tunables, wrapped, optimizer, device)
        if _all_agree_to_end(ends):
            break
    leave()


def leave() -> NoReturn:
    """End this process once all ranks have come here.

    The group is not closed: where one rank closes its connections first, gloo of PyTorch 1.13 sometimes waits for ever.
    """
    probe.stop()
    with suppress(RuntimeError):  # another rank has been here, and has ended before gloo was done with this one
        dist.barrier()
    sys.stdout.flush()
    os._exit(0)


def train_epoch(
    data: Batches,
    epoch: int,
    tunables: Tunables,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    device: torch.device,
) -> None:
    """Train for one epoch; rank 0 prints its rate, its loss and the values in force at its beginning."""
    began, seen, loss, shown = time.monotonic(), 0, torch.zeros(()), str(tunables)
    for last, images, labels in data.epoch(tunables.batch.value, tunables.workers.value):
        if torch.get_num_threads() != tunables.threads.value:
            torch.set_num_threads(tunables.threads.value)
        with probe.region("train"):
            with Timed("forward"):
                loss = nn.functional.cross_entropy(network(images.to(device)), labels.to(device))
            with Timed("backward"):
                optimizer.zero_grad()
                loss.backward()
            with Timed("optimizer"):
                optimizer.step()
        seen += len(images)
        probe.step(items=len(images), epoch=last)
    if dist.get_rank() == 0:
        rate = seen * dist.get_world_size() / (time.monotonic() - began)
        print(f"epoch {epoch}: {rate:.1f} samples/s, loss {loss.item():.3f}, {shown}", flush=True)


def _all_agree_to_end(ends: float) -> bool:
    """Whether the time of any rank is over; all ranks get the same answer, or one would wait for the others."""
    over = torch.tensor([float(time.monotonic() >= ends)])
    dist.all_reduce(over, op=dist.ReduceOp.MAX)
    return bool(over.item())


def _free_port() -> int:
    """A free port below the ephemeral ones: no connection can take it before the first rank listens."""
    for port in range(20_000 + os.getpid() * 7 % 10_000, 32_000):
        with socket.socket() as trial, suppress(OSError):
            trial.bind(("127.0.0.1", port))
            return port
    raise OSError("no port from 20,000 to 32,000 is free on 127.0.0.1; end programs that listen there")


def launch(ranks: int, arguments: list[str]) -> int:
    """Run this program once for each rank, and end all if one fails or the launcher is stopped."""
    shared = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(ranks)}
    processes = [
        subprocess.Popen([sys.executable, __file__, *arguments], env={**shared, "RANK": str(rank)})
        for rank in range(ranks)
    ]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # noqa: TID251  the launcher's own process
    try:
        while all(process.poll() is None for process in processes):
            time.sleep(0.2)
        ended = [process.poll() for process in processes if process.poll() is not None]
        return 1 if any(ended) else int(any(process.wait() for process in processes))
    except KeyboardInterrupt:
        return 130
    finally:
        for process in processes:
            process.terminate()


def main(arguments: list[str] | None = None) -> int:
    """Train a small CNN."""
    given = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2, help="number of processes; default: 2")
    parser.add_argument("--epochs", type=int, default=5, help="epochs; default: 5")
    parser.add_argument("--samples", type=int, default=64, help="samples of an epoch and rank; default: 64")
    parser.add_argument("--program", default="cnn", help="name of the job; default: cnn")
    parser.add_argument("--seconds", type=float, default=0.0, help="end after the epoch in which this time is over")
    parser.add_argument(
        "--batch",
        type=int,
        default=8,
        choices=(8, 16, 32),
        help="samples in a batch of one rank; default: 8, too small",
    )
    parser.add_argument("--workers", type=int, default=0, choices=(0, 1, 2, 4), help="loader workers; default: 0")
    parser.add_argument("--threads", type=int, default=1, choices=(1, 2, 4), help="intra-op threads; default: 1")
    parser.add_argument(
        "--bucket-mb", type=float, default=0.1, choices=(0.1, 1.0, 5.0, 25.0),
        help="size of a bucket of gradients; default: 0.1, too small",
    )  # fmt: skip
    options = parser.parse_args(given)
    if "RANK" not in os.environ:
        return launch(options.ranks, given)
    train(options)


if __name__ == "__main__":
    sys.exit(main())
