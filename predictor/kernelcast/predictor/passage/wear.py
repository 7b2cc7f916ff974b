"""Temperatures as they would be at one usual load: a GPU that cools worse is hotter at the same power.

T = a + R P, with P seen at once, after half an hour and after an hour, as the GPU and its chassis warm up: linear least
squares over two days. Where P did not vary, R is not identifiable and the series says nothing of this kind. Blocks at
less than a share of the usual high load are left out, so that like is compared with like; others are scaled to it.

`detector` estimates a trend of them beside that of the series itself.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats
from kernelcast.predictor.passage.series import HOUR_BLOCKS
from kernelcast.predictor.screening.blocks import MAD_TO_SIGMA, row_medians

_MEMORIES: Final = (0.0, 6.0, 12.0)
"""Blocks after which each of the smoothed loads has come within 37 % of a new one: at once, half an hour, an hour."""
_LEAST_BLOCKS: Final = 72
"""Blocks with both values that a fit needs."""
_NEWEST_BLOCKS: Final = 96
"""Newest blocks that are left out of the fit, eight hours."""
_HIGH_SHARE: Final = 0.9
"""Quantile of the heat that is the usual high load."""
_ALIKE_SHARE: Final = 0.6
"""Share of that heat from which a block is compared."""
_LEAST_EXPLAINED: Final = 0.8
"""Share of the variance that the load must explain: then the standard error of R is far below a tenth."""
_SETTLING_BLOCKS: Final = 3
"""Blocks after a rise of the load that are left out."""


@dataclass(frozen=True, slots=True, eq=False)
class Wear:
    """Series at their usual high load, shape (n, b).

    Attributes:
        values: NaN for blocks that are not compared, and for series without an identifiable load.
        known: Shape (n,), series whose load is identifiable.
        misfit: Shape (n,), standard deviation of hours around their usual value.
    """

    values: Floats
    known: Bools
    misfit: Floats


def at_usual_load(values: Floats, load: Floats) -> Wear:
    """Scale series to their usual high load.

    Args:
        values: Shape (n, b), relative to the limit.
        load: Shape (n, b), of the same series; NaN where it is not known.
    """
    smoothed = np.stack([_smoothed(load, memory) for memory in _MEMORIES], axis=2)
    both = np.isfinite(values) & np.isfinite(load)
    design = np.concatenate([np.ones((*values.shape, 1)), smoothed], axis=2)
    # A drift of the last hours is no effect of the load; it is left out where enough is left.
    fits = both & (np.arange(values.shape[1]) < values.shape[1] - _NEWEST_BLOCKS)
    fits = np.where((fits.sum(axis=1) >= _LEAST_BLOCKS)[:, None], fits, both)
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
    heat = np.where(both, fitted - effects[:, :1], np.nan)
    count = fits.sum(axis=1)
    mean = target.sum(axis=1) / np.maximum(count, 1)
    spread = np.where(fits, target - mean[:, None], 0.0)
    rest = np.where(fits, target - fitted, 0.0)
    explained = 1.0 - (rest**2).sum(axis=1) / np.maximum((spread**2).sum(axis=1), 1e-30)
    ordered = np.sort(heat, axis=1)
    place = np.floor(_HIGH_SHARE * np.maximum(both.sum(axis=1) - 1, 0)).astype(np.int64)
    high = ordered[np.arange(len(heat)), place]
    known = (count >= _LEAST_BLOCKS) & (explained >= _LEAST_EXPLAINED) & (high > 0)
    settled = np.ones(load.shape, np.bool_)
    rises = np.zeros(load.shape, np.bool_)
    rises[:, 1:] = np.nan_to_num(np.diff(load, axis=1)) > 0.2 * np.nan_to_num(load).max(axis=1, initial=0.0)[:, None]
    for later in range(_SETTLING_BLOCKS + 1):
        settled[:, later:] &= ~rises[:, : load.shape[1] - later]
    with np.errstate(invalid="ignore", divide="ignore"):
        alike = effects[:, :1] + (values - effects[:, :1]) * high[:, None] / heat
    compared = known[:, None] & (heat >= _ALIKE_SHARE * high[:, None]) & settled
    found = np.where(compared, alike, np.nan)
    whole = found.shape[1] // HOUR_BLOCKS * HOUR_BLOCKS
    hourly = row_medians(found[:, found.shape[1] - whole :].reshape(-1, HOUR_BLOCKS)).reshape(len(found), -1)
    misfit = MAD_TO_SIGMA * row_medians(np.abs(hourly - row_medians(hourly)[:, None]))
    return Wear(found, known, np.nan_to_num(misfit))


def _smoothed(load: Floats, memory: float) -> Floats:
    """Load with a memory of some blocks; a gap keeps the last value."""
    if not memory:
        return load
    found = np.empty(load.shape)
    share = -np.expm1(-1.0 / memory)
    now = np.nan_to_num(load[np.arange(len(load)), np.argmax(np.isfinite(load), axis=1)])
    for place in range(load.shape[1]):
        now = now + share * np.nan_to_num(load[:, place] - now)
        found[:, place] = now
    return found
