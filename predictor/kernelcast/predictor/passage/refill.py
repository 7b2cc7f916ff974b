"""Series that fall at once and rise again, as a cache that is emptied or memory after a restart. `detector` asks it.

A rise up to the level before the fall is no drift. The end of a burst is no such fall: the series was low before it.
"""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints

_FALL_SHARE: Final = 0.25
"""Least fall, as a share of the range of the series."""
_FALL_NOISE: Final = 8.0
"""Least fall, in standard deviations of a block."""
_MARGIN_SHARE: Final = 0.15
"""A series above the former level by this share of the fall does not refill any more."""
_HELD_BLOCKS: Final = 24
"""Blocks before a fall that show whether the series held its level."""
_HELD_SHARE: Final = 0.25
"""Share of the fall below its top within which a block is at the former level."""
_LEAST_HELD_BLOCKS: Final = 6
"""Blocks at the former level that a fall needs; fewer are a burst."""


def refilling(values: Floats, newest: Floats, noise: Floats, target: Floats) -> Bools:
    """Whether each series is below the level from which it fell, shape (n,).

    Args:
        values: Shape (n, b), so directed that a rise is bad; NaN for gaps.
        newest: Shape (n,), the last value that is no gap.
        noise: Shape (n,), standard deviation of a block.
        target: Shape (n,), the limit; a fall from there does not count, as it was a breach.
    """
    known = np.where(np.isfinite(values), values, -np.inf)
    change, bar = _changes(known, noise)
    found = _below_top(known, newest, change, bar, target)
    # A program that began since then has a range of its own, of which the falls of its cache are a larger share.
    begun = _place_after_last(change > bar[:, None])
    later = np.flatnonzero((begun > 0) & ~found)
    if len(later):
        own = np.where(np.arange(known.shape[1]) >= begun[later, None], known[later], -np.inf)
        found[later] = _below_top(own, newest[later], *_changes(own, noise[later]), target[later])
    return found


def _changes(known: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Change of each block from the last but one, shape (n, b - 2), and the least one that counts, shape (n,)."""
    highest = known.max(axis=1, initial=-np.inf)
    lowest = np.where(np.isfinite(known), known, np.inf).min(axis=1, initial=np.inf)
    before, after = known[:, :-2], known[:, 2:]
    both = np.isfinite(before) & np.isfinite(after)
    change = np.where(both, np.where(both, after, 0.0) - np.where(both, before, 0.0), 0.0)
    return change, np.maximum(_FALL_SHARE * np.maximum(highest - lowest, 0.0), _FALL_NOISE * noise)


def _below_top(known: Floats, newest: Floats, change: Floats, bar: Floats, target: Floats) -> Bools:
    """Whether each series is below the level from which it fell."""
    falls = change < -bar[:, None]
    falls[falls] = _held(known, -change, *np.nonzero(falls))
    top = np.where(falls, known[:, :-2], -np.inf).max(axis=1, initial=-np.inf)
    last = np.maximum(_place_after_last(falls) - 2, 0)
    size = -change[np.arange(len(known)), last]
    found: Bools = falls.any(axis=1) & (newest < top + _MARGIN_SHARE * size) & (top < target - 0.02 * np.abs(target))
    return found


def _place_after_last(chosen: Bools) -> Ints:
    """Place of the block that the last chosen change leads to; 0 where there is none."""
    last = chosen.shape[1] - 1 - np.argmax(chosen[:, ::-1], axis=1)
    place: Ints = np.where(chosen.any(axis=1), last + 2, 0)
    return place


def _held(known: Floats, fall: Floats, rows: Ints, places: Ints) -> Bools:
    """Whether each fall began at a level that the series had held or climbed to, not at the top of a burst."""
    window = places[:, None] - np.arange(_HELD_BLOCKS)
    before = np.where(window >= 0, known[rows[:, None], np.maximum(window, 0)], -np.inf)
    bottom = known[rows, places] - (1.0 - _HELD_SHARE) * fall[rows, places]
    least = np.maximum(np.isfinite(before).sum(axis=1) / 2, _LEAST_HELD_BLOCKS)
    held: Bools = (before > bottom[:, None]).sum(axis=1) >= least
    return held
