"""Memory that leaks at a steady rate below an allocator, which takes and frees memory in steps of its own.

Between its steps an allocator's memory stands still. With a leak it does not: many changes from block to block are
alike and positive, whatever the steps are, and hardly any is smaller. The changes of a cache that requests fill differ.
An allocator that grows in equal steps has blocks without a change between them. A cache that fills evenly frees at
times what it took at that rate.

`detector` extrapolates the leak from the newest block, and adds how far steps alone usually lift a series until then.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.passage.first_passage import GRID_BLOCKS
from kernelcast.predictor.passage.refill import refilling
from kernelcast.predictor.passage.series import DAY_BLOCKS
from kernelcast.predictor.passage.trend import CERTAIN_ERRORS
from kernelcast.predictor.robust import row_last, row_medians, row_quantiles

_WINDOWS: Final = ((12, 0.5), (24, 0.33), (48, 0.25), (96, 0.2))
"""Numbers of newest changes, and the share of them that shows a rate: chance makes a few alike, but not many."""
_LEAST_CHANGES: Final = 6
"""Changes that show a rate."""
_SPREADS: Final = 2.0
"""Error of a rate that six changes show, in half widths of their range, the narrowest of many; more err less."""
_LEAST_ERROR: Final = 0.02
"""Error of a rate, as a share of it, whose changes are equal."""
_ALIKE_SHARE: Final = 0.25
"""Distance from the rate, as a share of it, within which changes are alike."""
_STILL_WEIGHT: Final = 4.0
"""Alike changes that a smaller one outweighs: a leak does not pause."""
_STEP_WEIGHT: Final = 0.2
"""The same for a step of the allocator, which hides the leak of its block."""
_LEAST_WEIGHT: Final = 4.5
"""Alike changes, less what speaks against them, of a leak: six in an hour whose other six blocks have steps."""
_TAKEN_SHARE: Final = 0.5
"""Share of the memory that is freed which an allocator takes in steps after the first time."""
_LOW_SHARE: Final = 0.25
"""Share of the blocks since a leak began at which a series is lowest, as just after it has been emptied."""


@dataclass(frozen=True, slots=True, eq=False)
class Leak:
    """Leaks of series, shape (n,).

    Attributes:
        rate: Rise a block; 0 where no steady leak is seen.
        error: Standard error of the rate; infinite for none.
        age: Blocks since it began, at most a day.
        level: Present value, the newest known one carried over a gap.
        rise: Shape (n, grid), by how much steps alone usually lift the series until the times of `GRID_BLOCKS`.
    """

    rate: Floats
    error: Floats
    age: Ints
    level: Floats
    rise: Floats

    def rows(self, chosen: Bools) -> "Leak":
        """Some of the series."""
        return Leak(*(getattr(self, name)[chosen] for name in Leak.__slots__))


def steady_leak(values: Floats, target: Floats) -> Leak:
    """Find the leaks of series.

    Args:
        values: Shape (n, b), so directed that a rise is bad; NaN for gaps.
        target: Shape (n,), the limit.
    """
    values = values[:, -DAY_BLOCKS - 1 :]
    changes = np.diff(values, axis=1)
    rate, error = _rate(changes)
    age, level = np.zeros(len(values), np.int64), row_last(values)
    rise = np.zeros((len(values), len(GRID_BLOCKS)))
    leaks = rate > CERTAIN_ERRORS * error
    age[leaks], weight = _age(changes[leaks], rate[leaks], error[leaks])
    leaks[leaks] = weight >= _LEAST_WEIGHT
    leaks[leaks] = ~_refills(values[leaks], changes[leaks], rate[leaks], error[leaks], target[leaks])
    level[leaks], rise[leaks] = _steps(values[leaks], rate[leaks], age[leaks])
    return Leak(np.where(leaks, rate, 0.0), np.where(leaks, error, np.inf), np.where(leaks, age, 0), level, rise)


def _rate(changes: Floats) -> tuple[Floats, Floats]:
    """Rate of the newest changes that are most alike, and its error, shape (n,); 0 where they are not positive."""
    rate, error = np.zeros(len(changes)), np.full(len(changes), np.inf)
    for blocks, share in _WINDOWS:
        centre, half = _narrowest(changes[:, -blocks:], share)
        scale = np.sqrt(_LEAST_CHANGES / max(share * blocks, _LEAST_CHANGES))
        spread = np.maximum(_SPREADS * scale * half, _LEAST_ERROR * centre)
        surer = (centre > 0) & (centre / np.maximum(spread, 1e-12) > rate / error)
        rate, error = np.where(surer, centre, rate), np.where(surer, spread, error)
    return rate, error


def _narrowest(changes: Floats, share: float) -> tuple[Floats, Floats]:
    """Middle and half width of the narrowest range with a share of each row's changes; 0 and infinite for too few."""
    ordered = np.sort(changes, axis=1)
    count = np.isfinite(ordered).sum(axis=1)
    inside = np.maximum(np.ceil(share * count), _LEAST_CHANGES).astype(np.int64)
    last = np.arange(ordered.shape[1]) + inside[:, None] - 1
    top = np.take_along_axis(ordered, np.minimum(last, ordered.shape[1] - 1), 1)
    width = np.where(last < count[:, None], top - ordered, np.inf)
    best = np.argmin(width, axis=1)
    rows = np.arange(len(ordered))
    half: Floats = width[rows, best] / 2
    return np.where(np.isfinite(half), ordered[rows, best] + half, 0.0), half


def _age(changes: Floats, rate: Floats, error: Floats) -> tuple[Ints, Floats]:
    """Blocks since each leak began, and the alike changes since then less what speaks against it, shape (n,).

    A leak began where that difference is largest.
    """
    alike = _alike(changes, rate, error)
    still = np.abs(changes) < rate[:, None]
    weights = np.where(alike, 1.0, np.where(still, -_STILL_WEIGHT, -_STEP_WEIGHT))
    total = np.cumsum(np.where(np.isfinite(changes), weights, 0.0)[:, ::-1], axis=1)
    first = np.argmax(total, axis=1)
    return first + 1, total[np.arange(len(total)), first]


def _refills(values: Floats, changes: Floats, rate: Floats, error: Floats, target: Floats) -> Bools:
    """Whether each series is a cache that fills evenly and is emptied, shape (n,): no leak is ever freed.

    An allocator takes in steps what it frees; a cache takes it at the rate that looks like a leak.
    """
    step = np.where(_alike(changes, rate, error) | ~np.isfinite(changes), 0.0, changes - rate[:, None])
    step = np.where(np.logical_or.accumulate(changes < -rate[:, None], axis=1), step, 0.0)
    taken, freed = (np.maximum(sign * step, 0.0).sum(axis=1) for sign in (1.0, -1.0))
    refills: Bools = (taken < _TAKEN_SHARE * freed) & refilling(values, row_last(values), error, target)
    return refills


def _alike(changes: Floats, rate: Floats, error: Floats) -> Bools:
    """Changes that are alike the rate, shape (n, k)."""
    alike: Bools = np.abs(changes - rate[:, None]) <= np.maximum(error, _ALIKE_SHARE * rate)[:, None]
    return alike


def _steps(values: Floats, rate: Floats, age: Ints) -> tuple[Floats, Floats]:
    """Present level of each series, shape (n,), and how far steps alone usually lift it from there, shape (n, grid).

    Usual is the median over the blocks since the leak began at which the series was as low as it is now, or lowest:
    just after memory has been freed the next peak is far away.
    """
    ago = np.arange(values.shape[1] - 1.0, -1.0, -1.0)
    # What the steps until each block come to at the present leak.
    stepped = np.where(ago <= age[:, None], values + rate[:, None] * ago, np.nan)
    level = row_last(stepped)
    low = stepped <= np.fmax(level, row_quantiles(stepped, _LOW_SHARE))[:, None]
    highest, blocks = stepped, 0
    rise = np.zeros((len(values), len(GRID_BLOCKS)))
    for place, ahead in enumerate(GRID_BLOCKS.astype(np.int64).tolist()):
        if ahead < stepped.shape[1]:
            # The highest value of a window is that of two shorter ones that overlap and cover it.
            highest, blocks = np.fmax(highest[:, : blocks - ahead], highest[:, ahead - blocks :]), ahead
        usual = row_medians(np.where(low[:, : highest.shape[1]], highest, np.nan))
        rise[:, place] = np.nan_to_num(np.maximum(usual - level, 0.0))
    return level, np.maximum.accumulate(rise, axis=1)
