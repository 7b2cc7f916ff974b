"""Baselines of series whose limit is a multiple of their own usual value.

The first minutes of a process are left out: compilation, autotuning and cold clocks are not its usual speed. Then the
baseline is learnt from the lower cluster of a regime's blocks: it follows while nothing is wrong, and stays while the
series is slow. Another version, or a process of unknown version, begins a regime.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.passage.series import SeriesBlocks
from kernelcast.predictor.robust import row_medians, row_quantiles

OPENING_BLOCKS: Final = 3
"""First blocks of a process that are left out: 15 minutes."""
LEAST_BLOCKS: Final = 3
"""Blocks that a baseline needs."""
CLUSTER_RATIO: Final = 1.1
"""Blocks up to this multiple of the tenth percentile form the lower cluster."""
_LOW_SHARE: Final = 0.1
"""That percentile."""


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """Usual values, shape (n,).

    Attributes:
        value: The baseline; NaN until it is learnt.
        opening: Whether the process is in its first minutes.
        openings: Shape (n, b), blocks within the first minutes of a process.
        since: First block of the regime.
    """

    value: Floats
    opening: Bools
    openings: Bools
    since: Ints

    def rows(self, chosen: Bools) -> "Baseline":
        """Some of the series."""
        return Baseline(self.value[chosen], self.opening[chosen], self.openings[chosen], self.since[chosen])


def learn_some(blocks: SeriesBlocks, which: Bools, *, below: Bools) -> Baseline:
    """Learn the usual values of some of the series; the others have none, no first minutes, and one regime.

    Args:
        blocks: The series.
        which: Shape (n,).
        below: Shape (n,), whether lower is worse.
    """
    rows, length = blocks.median.shape
    found = learn(blocks.rows(which), below=below[which])
    value, opening = np.full(rows, np.nan), np.zeros(rows, dtype=np.bool_)
    openings, since = np.zeros((rows, length), dtype=np.bool_), np.zeros(rows, dtype=np.int64)
    value[which], opening[which], openings[which], since[which] = (
        found.value,
        found.opening,
        found.openings,
        found.since,
    )
    return Baseline(value, opening, openings, since)


def learn(blocks: SeriesBlocks, *, below: Bools) -> Baseline:
    """Learn the usual value of the present regime of each series.

    Args:
        blocks: The series.
        below: Shape (n,), whether lower is worse: then the upper cluster is the usual one.
    """
    length = blocks.median.shape[1]
    places = np.arange(length)
    since = regime_start(blocks)
    begins = _begins(blocks.process)
    age = places - np.maximum.accumulate(np.where(begins, places, 0), axis=1)
    usable = (places >= since[:, None]) & (age >= OPENING_BLOCKS) & np.isfinite(blocks.median)
    signed = np.where(below[:, None], -1.0, 1.0) * np.where(usable, blocks.median, np.nan)
    count = usable.sum(axis=1)
    low = row_quantiles(signed, _LOW_SHARE)
    near = signed <= (low + (CLUSTER_RATIO - 1.0) * np.abs(low))[:, None]
    value = np.abs(row_medians(np.where(near, signed, np.nan)))
    value[count < LEAST_BLOCKS] = np.nan
    return Baseline(value, length - last_true(begins) < OPENING_BLOCKS, age < OPENING_BLOCKS, since)


def regime_start(blocks: SeriesBlocks) -> Ints:
    """First block of the present regime: since the last change of version, or of a process without a known version."""
    change = np.zeros(blocks.process.shape, dtype=np.bool_)
    known = blocks.version >= 0
    change[:, 1:] = np.where(
        known[:, 1:] & known[:, :-1],
        blocks.version[:, 1:] != blocks.version[:, :-1],
        blocks.process[:, 1:] != blocks.process[:, :-1],
    )
    return last_true(change)


def _begins(process: Ints) -> Bools:
    begins = np.zeros(process.shape, dtype=np.bool_)
    begins[:, 1:] = process[:, 1:] != process[:, :-1]
    return begins


def last_true(change: Bools) -> Ints:
    """Place of the last true value of each row; 0 where there is none."""
    length = change.shape[1]
    last: Ints = np.where(change.any(axis=1), length - 1 - np.argmax(change[:, ::-1], axis=1), 0).astype(np.int64)
    return last
