"""The files of the Numenta Anomaly Benchmark on an even grid of time."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmarks.predictor.numenta.scoring import ScoredFile, prepare

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.backtest.grid import GriddedSeries, GridOptions, gridded
from kernelcast.predictor.backtest.table import read, unix_seconds


@dataclass(frozen=True, slots=True)
class Recording:
    """One file.

    Attributes:
        name: Folder and file.
        values: Shape (rows,).
        grid: The same on the grid that `kernelcast backtest` uses.
        scored: What each row is worth.
    """

    name: str
    values: Floats
    grid: GriddedSeries
    scored: ScoredFile

    @property
    def folder(self) -> str:
        """The folder, which holds files of one kind."""
        return self.name.split("/", maxsplit=1)[0]

    @property
    def season(self) -> int:
        """Intervals of a day."""
        return self.grid.seasons[0]


def load(folder: Path) -> list[Recording]:
    """Read every file that `combined_windows.json` names and that is present."""
    windows = json.loads((folder / "combined_windows.json").read_text())
    return [_read(folder, name, windows[name]) for name in sorted(windows) if (folder / name).exists()]


def _read(folder: Path, name: str, windows: list[list[str]]) -> Recording:
    table = read([folder / name])
    ((key, numbers),) = table.series().items()
    seconds = [row.seconds for row in table.rows]
    places = [(seconds.index(unix_seconds(first)), seconds.index(unix_seconds(last))) for first, last in windows]
    return Recording(
        name=name,
        values=np.array([row.value for row in table.rows]),
        grid=gridded(key, numbers, table, GridOptions()),
        scored=prepare(len(table.rows), places),
    )
