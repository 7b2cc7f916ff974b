"""The program: `examples/cnn.py` as a process, and the lines that it prints."""

import os
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final, Self

ROOT: Final = Path(__file__).parents[2]
SCRIPT: Final = ROOT / "examples" / "cnn.py"
LINE: Final = re.compile(
    r"epoch (\d+): ([\d.]+) samples/s, loss ([\d.]+), (\d+) loader workers, (\d+) threads, buckets of ([\d.]+) MB"
)
"""Line that the program prints after an epoch."""
WARM_UP_EPOCHS: Final = 2
"""First epochs, which are left out of a median: caches and workers start in them."""
TRIAL_SHARE: Final = "0.5"
"""A campaign takes minutes, and its planted regression costs time: with the usual 1 % nothing could begin after it."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """One printed line."""

    samples_per_second: float
    loss: float
    workers: int
    threads: int
    bucket_mb: float


@dataclass(frozen=True, slots=True)
class Settings:
    """The program's parameters."""

    loader_workers: int = 0
    threads: int = 4
    bucket_mb: float = 0.1

    def with_value(self, tunable: str, value: str) -> Self:
        """Return them with another value of a tunable, given as text."""
        return replace(self, **{tunable: type(getattr(self, tunable))(value)})

    def arguments(self) -> tuple[str, ...]:
        """Return them as arguments of the program."""
        return (
            "--workers", str(self.loader_workers), "--threads", str(self.threads), "--bucket-mb", str(self.bucket_mb)
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Launcher:
    """Starts the program.

    Attributes:
        python: An interpreter that has PyTorch; it needs nothing of kernelcast.
        ranks: Processes of a run.
        samples: Samples of an epoch.
    """

    python: str
    ranks: int
    samples: int

    def command(self, settings: Settings, *more: str) -> list[str]:
        """Return the command of a run."""
        fixed = ("--ranks", str(self.ranks), "--samples", str(self.samples))
        return [self.python, str(SCRIPT), *fixed, *settings.arguments(), *more]

    def environ(self, tuning_directory: str) -> dict[str, str]:
        """Return the variables of a run: the probe alone is on the path."""
        path = os.pathsep.join(str(ROOT / root) for root in ("core", "exporter"))
        return {
            "PYTHONPATH": path,
            "KERNELCAST_TUNING_DIRECTORY": tuning_directory,
            "KERNELCAST_TRIAL_SHARE": TRIAL_SHARE,
            "PYTHONWARNINGS": "ignore",
        }

    def run(
        self, settings: Settings, epochs: int, *, program: str = "cnn", tuning_directory: str = "off"
    ) -> list[Epoch]:
        """Run it to its end without an exporter; returns its epochs."""
        environ = {**os.environ, **self.environ(tuning_directory), "KERNELCAST_SOCKET": "/nonexistent/probe.sock"}
        command = self.command(settings, "--epochs", str(epochs), "--program", program)
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600, env=environ)
        return epochs_of(done.stdout)


def epochs_of(text: str) -> list[Epoch]:
    """Return the epochs that the program has printed."""
    return [
        Epoch(float(rate), float(loss), int(workers), int(threads), float(bucket))
        for _, rate, loss, workers, threads, bucket in LINE.findall(text)
    ]


def seconds_per_sample(epochs: list[Epoch]) -> float:
    """Return the median over the epochs after the first ones."""
    return median(1 / max(one.samples_per_second, 1.0) for one in epochs[WARM_UP_EPOCHS:])
