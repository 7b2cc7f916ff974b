"""Earlier runs of blocks beyond a limit, and jumps, of series whose limit follows from their own baseline.

An absolute limit is passed or not. A limit that was learnt from the series itself says nothing where the series often
passes it: durations that a CPU measures, or of a kernel with two speeds, have no usual value.

`detector` uses it to decide whether the present run beyond the limit is a fault or usual for the series.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.robust import row_medians

LEAST_BLOCKS: Final = 9
"""Blocks, without the first minutes, that a learnt limit needs before it counts."""
SHORT_BLOCKS: Final = 6
"""Longest run of blocks beyond the limit that counts as noise; a longer one was a fault of its own."""
JUMP_SHARE: Final = 0.1
"""Share of the known changes between blocks that must be jumps, before a series is said to jump often."""
LEAST_JUMPS: Final = 4
"""Jumps that this takes at least: a fault that begins and ends makes two of them."""
NOISE_ERRORS: Final = 5.0
"""Standard errors that noise does not explain; that of a young series is known to a fifth, and durations are skewed."""
HELD_SHARE: Final = 0.75
"""Share of the distance from baseline to limit below which a run is over: one that wavers around the limit goes on."""
_SLOW_SHARE: Final = 0.5
"""Share of the distance from baseline to limit from which a series is slow."""
_SLOW_END_SHARE: Final = 0.25
"""The same below which it is slow no more."""
_SLOW_RUNS: Final = 3
"""Times that a series must have been slow, and no more, before it is usual; a drift is slow once."""
LEAST_AWAY: Final = 3
"""Blocks above that share which are no noise any more; a single one may be, and noise without it would be too low."""


@dataclass(frozen=True, slots=True, eq=False)
class Excursions:
    """The record of each series, shape (n,).

    Attributes:
        known: Blocks before the present run.
        present: Length in blocks of the present run: from the first block beyond the limit on, until one is near the
            usual value again.
        longest: Longest earlier run, of those that are short.
        away: Shape (n, b), newest blocks that do not end a run, whether or not the limit was reached, if they are at
            least `LEAST_AWAY`.
    """

    known: Ints
    present: Ints
    longest: Ints
    away: Bools

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


def excursions(beyond: Bools, held: Bools, usable: Bools) -> Excursions:
    """Count the runs of blocks beyond a limit.

    Args:
        beyond: Shape (n, b), blocks at or beyond the limit.
        held: Shape (n, b), blocks that do not end a run; all that are beyond, and others.
        usable: Shape (n, b), blocks of the present regime with a value; others neither end nor extend a run.
    """
    rows = len(beyond)
    count = usable.sum(axis=1)
    longest, present = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    away = np.cumsum((usable & ~held)[:, ::-1], axis=1)[:, ::-1] == 0
    some = np.flatnonzero((beyond & usable).any(axis=1))
    if len(some):
        # The usable blocks of each row, moved to the right.
        order = np.argsort(usable[some], axis=1, kind="stable")
        run = _run_lengths(*(np.take_along_axis((one & usable)[some], order, axis=1) for one in (beyond, held)))
        present[some] = run[:, -1]
        ended = np.zeros(run.shape, np.bool_)
        ended[:, :-1] = run[:, 1:] == 0
        longest[some] = np.where(ended & (run <= SHORT_BLOCKS), run, 0).max(axis=1, initial=0)
    away &= usable
    away &= (away.sum(axis=1) >= LEAST_AWAY)[:, None]
    return Excursions((count - present).astype(np.int64), present, longest, away)


def usually_slow(excess: Floats, usable: Bools, distance: Floats) -> Floats:
    """Excess of the slow state that each series often enters and leaves, below its limit; 0 without one, shape (n,).

    A neighbour that shares a GPU makes a kernel slow for hours, day by day.

    Args:
        excess: Shape (n, b), distance of each block from the usual value, higher is worse.
        usable: Shape (n, b), blocks of the present regime with a value.
        distance: Shape (n,), from the usual value to the limit.
    """
    order = np.argsort(usable, axis=1, kind="stable")
    excess, usable = np.take_along_axis(excess, order, axis=1), np.take_along_axis(usable, order, axis=1)
    share = excess / distance[:, None]
    slow = usable & (share >= _SLOW_SHARE)
    run = _run_lengths(slow, usable & (share >= _SLOW_END_SHARE))
    earlier = slow & (np.arange(run.shape[1]) < run.shape[1] - run[:, -1:])
    times = ((run[:, :-1] > 0) & (run[:, 1:] == 0)).sum(axis=1)
    level = row_medians(np.where(earlier & (share < 1.0), excess, np.nan))
    usual: Floats = np.where(times >= _SLOW_RUNS, np.nan_to_num(level), 0.0)
    return usual


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


def _run_lengths(beyond: Bools, held: Bools) -> Ints:
    """Length up to each place of the run that a block beyond the limit began; 0 outside of runs, shape (n, b)."""
    places = np.arange(1, beyond.shape[1] + 1)
    ended = np.maximum.accumulate(np.where(held, 0, places), axis=1)
    count = np.concatenate([np.zeros((len(beyond), 1), np.int64), np.cumsum(beyond, axis=1)], axis=1)
    since = count[:, 1:] - np.take_along_axis(count, ended, axis=1)
    begun = np.maximum.accumulate(np.where(beyond & (since == 1), places, 0), axis=1)
    lengths: Ints = np.where(held & (since > 0), places - begun + 1, 0)
    return lengths
