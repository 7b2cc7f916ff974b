"""A series beside the same metric on the other GPUs of its node, at the same moment.

The GPUs of a node share its load, its air and its program. What all of them show is no fault of one; what one shows
alone is. Each series is brought to the usual high level of its node: the distance of the node's median below that level
is added, times the gain by which the series follows the median. Load and season are then gone, so a drift is seen from
hour to hour, also on the first day and under jobs that come and go.

`detector` estimates a trend of it beside that of the series itself. A fault that the whole node has is not seen here.
"""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.passage.noise import change_noise
from kernelcast.predictor.passage.series import HOUR_BLOCKS, history_length, hourly_medians
from kernelcast.predictor.robust import row_medians, row_quantiles, shrunk_gain

LEAST_GPUS: Final = 4
"""GPUs of a node with a value that a median needs: a fault of one of four does not move it."""
_HIGH_SHARE: Final = 0.95
"""Quantile of the node's medians that is its usual high level; the low level lies as far from the other end."""
_ALIKE_SHARE: Final = 0.35
"""Share of the range between both from which a block is compared: worse cooling shows under load."""
_NOW: Final = 6
"""Newest blocks whose median is the present level of the node, as that of a trend: half an hour."""
_APART: Final = 2
"""Blocks between the values whose changes show the gain."""
_LEAST_CHANGE: Final = 3.0
"""Size of changes, in steps of a gauge a block, that say as much about the gain as the assumption that it is 1."""
_NEWEST: Final = 96
"""Newest blocks that do not say whether a series follows its node, as they may show its fault: eight hours."""
_LEAST_EXPLAINED: Final = 0.8
"""Share of the variance of hourly changes that the node explains where a series follows it."""
_STEADY_STEPS: Final = 1.5
"""Hourly changes, in steps of a gauge, of a series that has little to be explained."""


def node_medians(values: Floats, groups: Ints) -> Floats:
    """Medians over the rows of each row's group, shape (n, b); NaN where fewer than `LEAST_GPUS` have a value.

    Args:
        values: Shape (n, b).
        groups: Shape (n,), number of the group of each row; negative for none.
    """
    medians = np.full(values.shape, np.nan)
    order = np.argsort(groups, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
        if len(rows) >= LEAST_GPUS and groups[rows[0]] >= 0:
            by_block = values[rows].T
            enough = np.isfinite(by_block).sum(axis=1) >= LEAST_GPUS
            medians[rows] = np.where(enough, row_medians(by_block), np.nan)
    return medians


def beside_node(values: Floats, node: Floats, resolution: Floats, everywhere: Bools) -> tuple[Floats, Floats]:
    """Bring series to the usual high level of their node.

    Args:
        values: Shape (n, b), so directed that a rise is bad.
        node: Shape (n, b), medians of the node, on the same scale.
        resolution: Shape (n,), step of the gauge on that scale.
        everywhere: Shape (n,), whether blocks at a low level of the node are compared, too.

    Returns:
        Values at that level, shape (n, b), NaN for blocks that are not compared and for series that do not follow their
        node; and the standard deviation of hours around their usual value, without a drift, shape (n,).
    """
    gain = _gain(values, node, resolution)[:, None]
    follows = _follows(values, values - gain * node, resolution)
    low, high = (row_quantiles(node, share)[:, None] for share in (1.0 - _HIGH_SHARE, _HIGH_SHARE))
    # A day above the usual ones: what a series is now counts, not what it would be on another day.
    high = np.fmax(high, row_medians(node[:, -_NOW:])[:, None])
    loaded = everywhere[:, None] | (node >= low + _ALIKE_SHARE * (high - low))
    alike = np.where(loaded & follows[:, None], values + gain * (high - node), np.nan)
    return alike, np.nan_to_num(change_noise(hourly_medians(alike)))


def _gain(values: Floats, node: Floats, resolution: Floats) -> Floats:
    """By how much each series changes with its node, shape (n,); 1 where the node hardly changes."""
    change, node_change = (each[:, _APART:] - each[:, :-_APART] for each in (values, node))
    weight = (_LEAST_CHANGE * resolution) ** 2 * _APART + 1e-12
    return shrunk_gain(change, node_change, usual=1.0, weight=weight)


def _follows(values: Floats, rest: Floats, resolution: Floats) -> Bools:
    """Whether the node explains the hourly changes of each series, shape (n,), or the series hardly changes.

    Args:
        values: Shape (n, b).
        rest: Shape (n, b), values without what the node explains.
        resolution: Shape (n,), step of the gauge.
    """
    change, unexplained = (each[:, HOUR_BLOCKS:] - each[:, :-HOUR_BLOCKS] for each in (values, rest))
    newest = np.minimum(_NEWEST, history_length(np.isfinite(rest)) // 2)
    kept = np.isfinite(unexplained) & (np.arange(change.shape[1]) < (change.shape[1] - newest)[:, None])
    total, left = (np.where(kept, each, 0.0) ** 2 for each in (change, unexplained))
    count, left = kept.sum(axis=1), left.sum(axis=1)
    steady = left <= (_STEADY_STEPS * resolution) ** 2 * count
    follows: Bools = (count >= HOUR_BLOCKS) & (steady | (left <= (1.0 - _LEAST_EXPLAINED) * total.sum(axis=1)))
    return follows
