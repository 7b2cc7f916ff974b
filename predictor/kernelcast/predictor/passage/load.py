"""Effect of the load on temperatures: T = a + R P, with P at once and as the GPU and its chassis warm up.

Linear least squares over the newest blocks, or over hours. Where P did not vary, R is not identifiable, and like can
only be compared with like. `wear` brings temperatures to one load with it, `departure` compares them with earlier ones.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats
from kernelcast.predictor.passage.series import HOUR_BLOCKS

_LEAST_EXPLAINED: Final = 0.8
"""Share of the variance that the load must explain: then the standard error of R is far below a tenth."""
_ABOVE: Final = 1.15
"""Highest load that a fit says something of, as a multiple of the highest that it has seen."""
_RISE_SHARE: Final = 0.2
"""Share of the highest load by which it rises within a column before the temperature needs time to settle."""
HEAT_SHARE: Final = 0.6
"""Share of a heat from which another one is compared with it."""
LOAD_SHARE: Final = 0.15
"""Share of a load by which another one may differ where the effect of the load is not known."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What the length of a column decides.

    Attributes:
        memories: Columns after which each of the smoothed loads has come within 37 % of a new one; 0 is at once.
        least: Columns with both values that a fit needs.
        newest: Newest columns that are left out of it where enough is left.
        settling: Columns after a rise of the load that are left out.
        shown: Columns at a like load that show the range of values at it.
    """

    memories: tuple[float, ...]
    least: int
    newest: int
    settling: int
    shown: int


BLOCKS: Final = Columns(memories=(0.0, 6.0, 12.0), least=72, newest=96, settling=3, shown=24)
"""Blocks: at once, after half an hour and an hour; without the newest eight hours."""
HOURS: Final = Columns(memories=(0.0, 1.0), least=24, newest=24, settling=0, shown=6)
"""Hours: at once and after an hour; without the newest day."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadEffect:
    """Effect of the load on n series in b columns.

    Attributes:
        known: Shape (n,), whether it is identifiable.
        effects: Shape (n, 1 + k), value without load, and what each smoothed load adds per unit.
        loads: Shape (n, b, k), the smoothed loads; 0 where they are not known.
        heat: Shape (n, b), what the load adds; NaN where the load or the value is not known.
        settled: Shape (n, b), columns without a large rise of the load just before.
        highest: Shape (n,), highest load that the fit has seen.
    """

    known: Bools
    effects: Floats
    loads: Floats
    heat: Floats
    settled: Bools
    highest: Floats

    @classmethod
    def of(cls, values: Floats, load: Floats, columns: Columns) -> "LoadEffect":
        """Fit it; values and load have shape (n, b)."""
        loads = np.stack([_smoothed(load, memory) for memory in columns.memories], axis=2)
        both = np.isfinite(values) & np.isfinite(load)
        design = np.concatenate([np.ones((*values.shape, 1)), loads], axis=2)
        # A drift of the last hours is no effect of the load; it is left out where enough is left.
        fits = both & (np.arange(values.shape[1]) < values.shape[1] - columns.newest)
        fits = np.where((fits.sum(axis=1) >= columns.least)[:, None], fits, both)
        design = np.nan_to_num(design)
        weighted = np.where(fits[:, :, None], design, 0.0)
        target = np.where(fits, values, 0.0)
        size = np.einsum("nbk,nbl->nkl", weighted, weighted)
        # A ridge: loads that do not vary have no effect.
        ridge = 1e-6 * np.einsum("nkk->nk", size)[:, :, None] * np.eye(design.shape[2])
        effects = np.linalg.solve(
            size + ridge + 1e-12 * np.eye(design.shape[2]), np.einsum("nbk,nb->nk", weighted, target)[:, :, None]
        )[:, :, 0]
        fitted = np.einsum("nbk,nk->nb", design, effects)
        count = fits.sum(axis=1)
        mean = target.sum(axis=1) / np.maximum(count, 1)
        spread = np.where(fits, target - mean[:, None], 0.0)
        rest = np.where(fits, target - fitted, 0.0)
        explained = 1.0 - (rest**2).sum(axis=1) / np.maximum((spread**2).sum(axis=1), 1e-30)
        highest = np.where(fits, load, -np.inf).max(axis=1, initial=-np.inf)
        known = (count >= columns.least) & (explained >= _LEAST_EXPLAINED) & _covers(highest, load)
        heat = np.where(both, fitted - effects[:, :1], np.nan)
        return cls(known, effects, design[:, :, 1:], heat, _settled(load, columns.settling), highest)

    def rest(self, values: Floats) -> Floats:
        """Values without the effect, shape (n, b); NaN where the load is not known or has just risen."""
        return np.where(self.settled, values - self.effects[:, :1] - self.heat, np.nan)

    def rows(self, chosen: Bools) -> "LoadEffect":
        """The effect on some of the series."""
        return LoadEffect(*(getattr(self, name)[chosen] for name in LoadEffect.__slots__))

    def in_blocks(self, load: Floats) -> "LoadEffect":
        """The effect that hours have shown, for the loads of blocks, shape (n, b)."""
        smoothed = [_smoothed(load, HOUR_BLOCKS * memory) for memory in HOURS.memories]
        loads = np.nan_to_num(np.stack(smoothed, axis=2))
        heat = np.where(np.isfinite(load), np.einsum("nbk,nk->nb", loads, self.effects[:, 1:]), np.nan)
        known, settled = self.known & _covers(self.highest, load), _settled(load, BLOCKS.settling)
        return replace(self, known=known, loads=loads, heat=heat, settled=settled)


def _covers(highest: Floats, load: Floats) -> Bools:
    """Whether no load, shape (n, b), is clearly above the highest one that a fit has seen, shape (n,); shape (n,)."""
    covers: Bools = np.nan_to_num(load).max(axis=1, initial=0.0) <= _ABOVE * highest
    return covers


def _settled(load: Floats, columns: int) -> Bools:
    """Columns without a large rise of the load in the last ones, or a large fall within them, shape (n, b)."""
    calm, rises = np.ones(load.shape, np.bool_), np.zeros(load.shape, np.bool_)
    highest = np.nan_to_num(load).max(axis=1, initial=0.0)[:, None]
    change = np.nan_to_num(np.diff(load, axis=1))
    rises[:, 1:] = change > _RISE_SHARE * highest
    for later in range(columns + 1):
        calm[:, later:] &= ~rises[:, : load.shape[1] - later]
    # Within the block in which a job ends the temperature does not follow the load.
    calm[:, 1:] &= change > -_RISE_SHARE * highest
    return calm


def _smoothed(load: Floats, memory: float) -> Floats:
    """Load with a memory of some columns; a gap keeps the last value."""
    if not memory or not load.shape[1]:
        return load
    smoothed, known = np.empty(load.shape), np.isfinite(load)
    share = -np.expm1(-1.0 / memory)
    now = np.nan_to_num(load[np.arange(len(load)), np.argmax(known, axis=1)])
    for place in range(load.shape[1]):
        now = now + share * np.where(known[:, place], load[:, place] - now, 0.0)
        smoothed[:, place] = now
    return smoothed
