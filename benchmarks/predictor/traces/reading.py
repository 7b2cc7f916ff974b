"""Recordings of training steps: operations by rank, step and microbatch, read into the detector's input.

A file has one row for each operation, with at least the columns `dp_rank`, `stage`, `rank`, `step`, `optype`,
`duration` (seconds), `mb_id` and `seq_id`, in any order.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kernelcast.predictor.peers import PeerGroups, PeerStep

COLUMNS: Final = ("dp_rank", "stage", "rank", "step", "optype", "duration", "mb_id", "seq_id")
WORKER: Final = ["stage", "dp_rank"]


@dataclass(frozen=True)
class Trace:
    """A recording.

    Attributes:
        stage: Shape (workers,), the pipeline stage of each worker.
        dp_rank: Shape (workers,), the data-parallel rank of each worker.
        steps: The steps, by number. Ranks that share stage and data-parallel rank (tensor parallelism) are one
            worker; the slowest of them counts.
        stages_known: Whether the detector knows the stages; live, it sees only which kernels a rank launches.
    """

    stage: NDArray[np.int64]
    dp_rank: NDArray[np.int64]
    steps: list[PeerStep]
    stages_known: bool = True

    @property
    def groups(self) -> PeerGroups:
        """The workers by stage, or all in one group."""
        return PeerGroups.of(self.stage if self.stages_known else np.zeros_like(self.stage))


def files(path: Path) -> list[Path]:
    """The recordings at a path: a file, or the CSV files of a folder."""
    if path.is_file():
        return [path]
    found = sorted(file for file in path.iterdir() if file.name.endswith((".csv", ".csv.gz")))
    if not found:
        message = f"{path} has no .csv or .csv.gz file; name a recording with --data"
        raise SystemExit(message)
    return found


def read(path: Path) -> Trace:
    """Read a recording; a step that was recorded twice after a restart counts once, the last time."""
    rows = pd.read_csv(path)
    missing = [name for name in COLUMNS if name not in rows.columns]
    if missing:
        message = f"{path} lacks the columns {', '.join(missing)}; it has {', '.join(rows.columns)}"
        raise SystemExit(message)
    key = [name for name in ("rank", "step", "optype", "mc", "mb_id", "seq_id") if name in rows.columns]
    rows = rows[rows["duration"] > 0].drop_duplicates(key, keep="last")
    return of_rows(rows)


def of_rows(rows: pd.DataFrame) -> Trace:
    """Turn operations into steps."""
    workers = rows[WORKER].drop_duplicates().sort_values(WORKER).reset_index(drop=True)
    numbers = np.sort(rows["step"].unique())
    rows = rows.assign(
        worker=_index(workers, rows),
        at=np.searchsorted(numbers, rows["step"]),
        tensor=rows.groupby(WORKER)["rank"].rank(method="dense").astype(int),
    )
    units = _units(rows, len(numbers), len(workers))
    steps = [PeerStep(int(number), units[at]) for at, number in enumerate(numbers)]
    return Trace(workers["stage"].to_numpy(), workers["dp_rank"].to_numpy(), steps)


def _index(workers: pd.DataFrame, rows: pd.DataFrame) -> NDArray[np.int64]:
    index = pd.MultiIndex.from_frame(workers)
    return np.asarray(index.get_indexer(pd.MultiIndex.from_frame(rows[WORKER])), dtype=np.int64)


def _units(rows: pd.DataFrame, steps: int, workers: int) -> NDArray[np.float64]:
    """Shape (steps, workers, microbatches): compute time, NaN where a worker lacks an operation its stage has."""
    compute = rows[rows["optype"].str.endswith("-compute")]
    batches = np.sort(compute["mb_id"].unique())
    compute = compute.assign(batch=np.searchsorted(batches, compute["mb_id"]))
    by_rank = compute.groupby(["at", "worker", "batch", "tensor"])["duration"].agg(["sum", "size"])
    by_worker = by_rank.groupby(["at", "worker", "batch"]).max().reset_index()
    stage = compute.groupby("worker")["stage"].first()
    whole = by_worker.groupby(["at", by_worker["worker"].map(stage), "batch"])["size"].transform("max")
    complete = by_worker[by_worker["size"] == whole]
    units = np.full((steps, workers, max(len(batches), 1)), np.nan)
    units[complete["at"], complete["worker"], complete["batch"]] = complete["sum"]
    return units
