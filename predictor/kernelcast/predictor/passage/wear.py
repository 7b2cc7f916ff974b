"""Temperatures as they would be at one usual load: a GPU that cools worse is hotter at the same power.

T = a + R P, with P seen at once, after half an hour and after an hour, as the GPU and its chassis warm up: linear least
squares over two days. Where P did not vary, R is not identifiable and the series says nothing of this kind. Blocks at
less than a share of the usual high load are left out, so that like is compared with like; others are scaled to it.

`detector` estimates a trend of them beside that of the series itself.
"""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.passage.load import HEAT_SHARE, LoadEffect
from kernelcast.predictor.passage.series import hourly_medians
from kernelcast.predictor.robust import MAD_TO_SIGMA, row_medians, row_quantiles

_HIGH_SHARE: Final = 0.9
"""Quantile of the heat that is the usual high load."""


def at_usual_load(values: Floats, load: LoadEffect) -> tuple[Floats, Floats]:
    """Scale series to their usual high load.

    Args:
        values: Shape (n, b), relative to the limit.
        load: Its effect on the same blocks.

    Returns:
        Scaled values, shape (n, b), NaN for blocks that are not compared and for series without an identifiable load;
        and the standard deviation of hours around their usual value, shape (n,).
    """
    high = row_quantiles(load.heat, _HIGH_SHARE)
    base = load.effects[:, :1]
    with np.errstate(invalid="ignore", divide="ignore"):
        alike = base + (values - base) * high[:, None] / load.heat
    compared = (load.known & (high > 0))[:, None] & (load.heat >= HEAT_SHARE * high[:, None]) & load.settled
    scaled = np.where(compared, alike, np.nan)
    hourly = hourly_medians(scaled)
    misfit = MAD_TO_SIGMA * row_medians(np.abs(hourly - row_medians(hourly)[:, None]))
    return scaled, np.nan_to_num(misfit)
