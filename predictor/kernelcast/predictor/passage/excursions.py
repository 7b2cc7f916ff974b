"""Earlier runs of blocks beyond a limit, and jumps, of series whose limit follows from their own baseline.

An absolute limit is passed or not. A limit that was learnt from the series itself says nothing where the series often
passes it: durations that a CPU measures, or of a kernel with two speeds, have no usual value.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints

LEAST_BLOCKS: Final = 9
"""Blocks, without the first minutes, that a learnt limit needs before it counts."""
SHORT_BLOCKS: Final = 6
"""Longest run of blocks beyond the limit that counts as noise; a longer one was a fault of its own."""
JUMP_SHARE: Final = 0.1
LEAST_JUMPS: Final = 4
NOISE_ERRORS: Final = 5.0
"""Standard errors that noise does not explain; that of a young series is known to a fifth, and durations are skewed."""


@dataclass(frozen=True, slots=True, eq=False)
class Excursions:
    """The record of each series, shape (n,).

    Attributes:
        known: Blocks before the present run.
        present: Length in blocks of the present run beyond the limit.
        longest: Longest earlier run, of those that are short.
    """

    known: Ints
    present: Ints
    longest: Ints

    @property
    def lasts(self) -> Bools:
        """Whether the present run is longer than the earlier short ones."""
        found: Bools = (self.present > self.longest) & (self.known >= LEAST_BLOCKS)
        return found

    @property
    def prompt(self) -> Bools:
        """Whether a limit that is passed counts at once: the series is well known and never passed it for a while."""
        found: Bools = (self.longest == 0) & (self.known >= LEAST_BLOCKS)
        return found


def excursions(beyond: Bools, usable: Bools) -> Excursions:
    """Count the runs of blocks beyond a limit.

    Args:
        beyond: Shape (n, b), blocks at or beyond the limit.
        usable: Shape (n, b), blocks of the present regime with a value; others neither end nor extend a run.
    """
    rows = len(beyond)
    count = usable.sum(axis=1)
    longest, present = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    some = np.flatnonzero((beyond & usable).any(axis=1))
    if len(some):
        # The usable blocks of each row, moved to the right.
        order = np.argsort(usable[some], axis=1, kind="stable")
        run = _run_lengths(np.take_along_axis((beyond & usable)[some], order, axis=1))
        present[some] = run[:, -1]
        ended = np.zeros(run.shape, np.bool_)
        ended[:, :-1] = run[:, 1:] == 0
        longest[some] = np.where(ended & (run <= SHORT_BLOCKS), run, 0).max(axis=1, initial=0)
    return Excursions((count - present).astype(np.int64), present, longest)


def explained_by_noise(excess: Floats, usable: Bools, present: Ints, noise: Floats, correlation: Floats) -> Bools:
    """Whether noise alone explains the present run beyond a limit, as no mean of its newest blocks is too high for it.

    Args:
        excess: Shape (n, b), distance of each block from the usual value, higher is worse.
        usable: Shape (n, b), blocks of the present regime with a value.
        present: Shape (n,), length of the present run; one longer than `SHORT_BLOCKS` is no noise.
        noise: Shape (n,), standard deviation of a block.
        correlation: Shape (n,), of one block's noise with the next one's.
    """
    found = np.zeros(len(excess), np.bool_)
    some = np.flatnonzero((present > 0) & (present <= SHORT_BLOCKS))
    order = np.argsort(usable[some], axis=1, kind="stable")[:, : -SHORT_BLOCKS - 1 : -1]
    length = np.arange(1, order.shape[1] + 1)
    mean = np.cumsum(np.take_along_axis(excess[some], order, axis=1), axis=1) / length
    # Variance of the mean of correlated blocks, relative to that of one: Priestley (1981), section 5.3.
    lag = length - 1
    pairs = np.where(lag == 0, 1.0, 2.0) * np.maximum(length[:, None] - lag, 0)
    variance = correlation[some, None] ** lag @ pairs.T / length**2
    # Blocks before the run count too: a kernel that is slow near its limit wavers around it.
    found[some] = ~(mean > NOISE_ERRORS * noise[some, None] * np.sqrt(variance)).any(axis=1)
    return found


def jumps_often(values: Floats, size: float | Floats) -> Bools:
    """Whether neighbouring blocks often differ by the distance between baseline and limit, shape (n,).

    Args:
        values: Shape (n, b), NaN for blocks that do not count.
        size: That distance, shape (n,) or one for all.
    """
    change = np.abs(np.diff(values, axis=1))
    known = np.isfinite(change)
    jumps = (known & (change >= np.reshape(size, (-1, 1)))).sum(axis=1)
    found: Bools = jumps >= np.maximum(LEAST_JUMPS, JUMP_SHARE * known.sum(axis=1))
    return found


def _run_lengths(beyond: Bools) -> Ints:
    """Length of the run of true values up to each place; 0 where it is false."""
    places = np.arange(beyond.shape[1])
    last_usual = np.maximum.accumulate(np.where(beyond, -1, places), axis=1)
    lengths: Ints = places - last_usual
    return lengths
