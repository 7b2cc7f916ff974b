"""Recorded series as sources of noise, and longer series drawn from them by block bootstrap."""

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from kernelcast.predictor.arrays import Bools, Floats

BLOCK_VALUES: Final = 240
"""Mean length of a block: 4 hours of one value a minute."""
LEAST_VALUES: Final = 200
MOST_PER_KIND: Final = 24
COMPUTE: Final = ("forward-compute", "backward-compute")
_WINDOWS: Final = "combined_windows.json"


@dataclass(frozen=True, slots=True)
class Noise:
    """One recorded series without its known anomalies.

    Attributes:
        name: File, and the part of it.
        kind: Kind of its recording.
        pieces: Healthy stretches, in order, each without gaps.
    """

    name: str
    kind: str
    pieces: tuple[Floats, ...]

    def drawn(self, rng: np.random.Generator, length: int) -> Floats:
        """A series of another length, made of blocks of the recorded one.

        Lengths of blocks are geometrically distributed, and each block begins anywhere.
        Source: Politis and Romano, The stationary bootstrap, JASA 89 (1994).
        """
        sizes = np.array([len(piece) for piece in self.pieces])
        blocks: list[Floats] = []
        missing = length
        while missing > 0:
            piece = self.pieces[int(rng.choice(len(sizes), p=sizes / sizes.sum()))]
            count = min(int(rng.geometric(1 / BLOCK_VALUES)), missing, len(piece))
            begin = int(rng.integers(0, len(piece) - count + 1))
            blocks.append(piece[begin : begin + count])
            missing -= count
        return np.concatenate(blocks)


def sources(folder: Path, rng: np.random.Generator) -> list[Noise]:
    """All recordings under a folder that have enough values; of each kind at most 24, drawn at random."""
    kinds: dict[str, list[Noise]] = defaultdict(list)
    windows = _windows(folder)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        for noise in _read(path, windows):
            kinds[noise.kind].append(noise)
    chosen: list[Noise] = []
    for kind in sorted(kinds):
        found = kinds[kind]
        places = np.sort(rng.permutation(len(found))[:MOST_PER_KIND])
        chosen += [found[place] for place in places.tolist()]
    return chosen


def _read(path: Path, windows: dict[str, list[list[str]]]) -> list[Noise]:
    if path.name.endswith(".json.gz"):
        return _kernels(path)
    if not path.name.endswith((".csv", ".csv.gz")) or path.parent.name.startswith("artificial"):
        return []
    header = pd.read_csv(path, nrows=0).columns
    if {"timestamp", "value"} <= set(header):
        return _metric(path, windows)
    return _steps(path) if {"rank", "optype", "duration", "start_ts"} <= set(header) else []


def _windows(folder: Path) -> dict[str, list[list[str]]]:
    """Anomaly windows by folder and file name, from every file of windows."""
    found: dict[str, list[list[str]]] = {}
    for path in folder.rglob(_WINDOWS):
        found |= json.loads(path.read_text())
    return found


def _metric(path: Path, windows: dict[str, list[list[str]]]) -> list[Noise]:
    """A metric; rows within an anomaly's window are left out."""
    name = f"{path.parent.name}/{path.name}"
    rows = pd.read_csv(path)
    times = pd.to_datetime(rows["timestamp"])
    healthy = np.ones(len(rows), dtype=np.bool_)
    for first, last in windows.get(name, []):
        healthy &= ~((times >= pd.Timestamp(first)) & (times <= pd.Timestamp(last))).to_numpy()
    values = rows["value"].to_numpy(dtype=np.float64)
    return _usable(name, "metric", _stretches(values, healthy & np.isfinite(values)))


def _stretches(values: Floats, healthy: Bools) -> list[Floats]:
    edges = np.flatnonzero(np.diff(healthy.astype(np.int64)) != 0) + 1
    parts = zip(np.split(values, edges), np.split(healthy, edges), strict=True)
    return [part for part, good in parts if len(good) and good[0] and len(part) >= LEAST_VALUES]


def _steps(path: Path) -> list[Noise]:
    """Durations of computation of each worker, in order of time."""
    rows = pd.read_csv(path).sort_values("start_ts")
    found: list[Noise] = []
    for (operation, rank), part in rows[rows["optype"].isin(COMPUTE)].groupby(["optype", "rank"]):
        values = part["duration"].to_numpy(dtype=np.float64)
        found += _usable(f"{path.name} {operation} {rank}", "training step", [values])
    return found


def _kernels(path: Path) -> list[Noise]:
    """Durations of each kernel with one configuration, in order of time."""
    with gzip.open(path) as lines:
        events: list[dict[str, Any]] = json.load(lines).get("traceEvents", [])
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if str(event.get("cat", "")).lower() == "kernel" and event.get("dur", 0) > 0:
            arguments = event.get("args", {})
            key = f"{event['name']} {arguments.get('grid')} {arguments.get('block')}"
            groups[key].append((float(event["ts"]), float(event["dur"])))
    found: list[Noise] = []
    for number, key in enumerate(sorted(groups)):
        durations = np.array([duration for _, duration in sorted(groups[key])])
        found += _usable(f"{path.name} kernel {number}", "kernel", [durations])
    return found


def _usable(name: str, kind: str, pieces: list[Floats]) -> list[Noise]:
    """The series, if it has a healthy stretch that is long enough and not constant."""
    long = tuple(piece for piece in pieces if len(piece) >= LEAST_VALUES)
    return [Noise(name, kind, long)] if long and np.ptp(np.concatenate(long)) > 0 else []
