"""Recordings for `kernelcast backtest`, and runs of it."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kernelcast.cli.app import run

START = 1_700_000_000
"""Time of the first row, Unix seconds."""


def lines(count: int, *, every: int = 60, seed: int = 1) -> list[str]:
    """Rows of noise around 50, at a fixed interval."""
    values = np.random.default_rng(seed).normal(50, 5, count)
    return [f"{START + every * index},{value:.3f}" for index, value in enumerate(values)]


def written(path: Path, rows: Sequence[str], header: str = "timestamp,value") -> Path:
    """Write a recording; returns its path."""
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def backtest(tmp_path: Path, *arguments: str | Path, code: int = 0) -> list[dict[str, str]]:
    """Run the command, check its exit code, and return the rows of its output."""
    output = tmp_path / "out.csv"
    assert run(["backtest", *map(str, arguments), "--output", str(output)]) == code
    return list(csv.DictReader(output.read_text().splitlines())) if code == 0 else []
