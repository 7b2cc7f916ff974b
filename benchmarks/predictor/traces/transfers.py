"""Transfer times from recorded operations: sends and receives between stages, collectives within a stage.

Input is a table with the columns of the recording and `worker` (index), `at` (index of the step) and `tensor` (number
of the rank within its worker).
"""

from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from kernelcast.predictor.peers import Links

DIRECTIONS: Final = {"forward": 1, "backward": -1}
COLLECTIVES: Final = ("grads-reduce-scatter", "params-all-gather", "grads-all-reduce")
"""Collectives of the data-parallel ranks of one stage; of the others the groups are not known."""
LINK: Final = ["kind", "group", "worker", "worker_to"]
TRANSFER: Final = [*LINK, "at", "seq_id"]


def transfer_times(rows: pd.DataFrame, steps: int) -> tuple[Links, NDArray[np.float64], NDArray[np.float64]]:
    """Links, and shape (steps, links) each: the median time of their transfers, and how many there were."""
    found = pd.concat([*(_pairs(rows, direction) for direction in DIRECTIONS), _collectives(rows)])
    by_transfer = found.groupby(TRANSFER)["seconds"].max()
    table = by_transfer.groupby([*LINK, "at"]).agg(["median", "size"]).reset_index()
    link = table.groupby(LINK).ngroup().to_numpy()
    ends = table.groupby(link).first()
    links = Links(*(ends[name].to_numpy(dtype=np.int64) for name in ("worker", "worker_to", "group", "kind")))
    median = np.full((steps, len(ends)), np.nan)
    median[table["at"], link] = table["median"]
    count = np.zeros((steps, len(ends)))
    count[table["at"], link] = table["size"]
    return links, median, count


def _pairs(rows: pd.DataFrame, direction: str) -> pd.DataFrame:
    """Transfers between neighbouring stages.

    Sender and receiver wait for each other; whichever comes last measures the transfer alone, so the shorter of the
    two durations is the transfer's.
    """
    offset, stages = DIRECTIONS[direction], int(rows["stage"].max()) + 1
    sent = rows[rows["optype"] == f"{direction}-send"]
    sent = sent.assign(stage_to=(sent["stage"] + offset) % stages, group=sent["stage"] * 2 + (offset > 0), kind=-1)
    received = rows[rows["optype"] == f"{direction}-recv"]
    received = received.rename(columns={"stage": "stage_to", "worker": "worker_to", "duration": "duration_to"})
    shared = ["at", "dp_rank", "tensor", "stage_to", "seq_id"]
    paired = sent.merge(received[[*shared, "worker_to", "duration_to"]], on=shared)
    return paired.assign(seconds=paired[["duration", "duration_to"]].min(axis=1))[[*TRANSFER, "seconds"]]


def _collectives(rows: pd.DataFrame) -> pd.DataFrame:
    """Parts of the workers in collectives: from the start of the last member to the own end.

    All members end together unless the connection of some is slow. A collective without start times is left out.
    """
    if "start_ts" not in rows.columns:
        return pd.DataFrame(columns=[*TRANSFER, "seconds"])
    own = rows[rows["optype"].isin(COLLECTIVES)]
    last = own.groupby(["optype", "stage", "at", "tensor", "seq_id"])["start_ts"].transform("max")
    group = 1000 + own["stage"] * len(COLLECTIVES) + own["optype"].map(COLLECTIVES.index)
    seconds = own["start_ts"] + own["duration"] - last
    own = own.assign(seconds=seconds, group=group, kind=group, worker_to=own["worker"])
    return own.loc[seconds > 0, [*TRANSFER, "seconds"]]
