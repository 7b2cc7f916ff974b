"""The files of the Numenta Anomaly Benchmark on an even grid of time."""

import csv
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np
from benchmarks.predictor.numenta.scoring import ScoredFile, prepare

from kernelcast.predictor.arrays import Floats, Ints

DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class Recording:
    """One file.

    Attributes:
        name: Folder and file.
        values: Shape (rows,).
        slots: Shape (rows,), the interval of each row; ascending, gaps left out.
        interval_seconds: Median distance of two rows.
        scored: What each row is worth.
    """

    name: str
    values: Floats
    slots: Ints
    interval_seconds: float
    scored: ScoredFile

    @property
    def folder(self) -> str:
        """The folder, which holds files of one kind."""
        return self.name.split("/", maxsplit=1)[0]

    @property
    def season(self) -> int:
        """Intervals of a day."""
        return round(DAY_SECONDS / self.interval_seconds)

    def on_grid(self) -> Floats:
        """Shape (intervals,), NaN where an interval has no row."""
        grid = np.full(int(self.slots[-1]) + 1, np.nan)
        grid[self.slots] = self.values
        return grid


def load(folder: Path) -> list[Recording]:
    """Read every file that `combined_windows.json` names and that is present."""
    windows = json.loads((folder / "combined_windows.json").read_text())
    return [_read(folder, name, windows[name]) for name in sorted(windows) if (folder / name).exists()]


def _read(folder: Path, name: str, windows: list[list[str]]) -> Recording:
    with (folder / name).open(newline="") as lines:
        rows = [(datetime.fromisoformat(time), float(value)) for time, value in list(csv.reader(lines))[1:]]
    times = [time for time, _ in rows]
    seconds = np.array([(time - times[0]).total_seconds() for time in times])
    interval = float(np.median(np.diff(seconds)))
    places = [(_place(times, first), _place(times, last)) for first, last in windows]
    return Recording(
        name=name,
        values=np.array([value for _, value in rows]),
        slots=_slots(seconds, interval),
        interval_seconds=interval,
        scored=prepare(len(rows), places),
    )


def _place(times: list[datetime], text: str) -> int:
    return times.index(datetime.fromisoformat(text))


def _slots(seconds: Floats, interval: float) -> Ints:
    """The interval of each row; a row whose interval is taken goes to the next free one."""
    wanted = np.rint(seconds / interval).astype(np.int64)
    index = np.arange(len(wanted))
    slots: Ints = np.maximum.accumulate(wanted - index) + index
    return slots
