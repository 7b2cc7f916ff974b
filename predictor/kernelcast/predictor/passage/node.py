"""A series beside the same metric on the other GPUs of its node, at the same moment.

The GPUs of a node share its load, its air and its program. What all of them show is no fault of one; what one shows
alone is. Each series is brought to the usual high level of its node: what the node's median is below it at that moment
is added, times the gain by which the series follows the median. Load and season are then gone, so a drift is seen from
hour to hour, also on the first day and under jobs that come and go.

`detector` estimates a trend of it beside that of the series itself. A fault that the whole node has is not seen here.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.passage.series import HOUR_BLOCKS
from kernelcast.predictor.robust import MAD_TO_SIGMA, row_medians

LEAST_GPUS: Final = 4
"""GPUs of a node with a value that a median needs: a fault of one of four does not move it."""
_HIGH_SHARE: Final = 0.95
"""Quantile of the node's medians that is its usual high level."""
_ALIKE_SHARE: Final = 0.35
"""Share of the range up to that level from which a block is compared: worse cooling shows under load."""
_APART: Final = 2
"""Blocks between the values whose changes are compared."""
_LEAST_CHANGE: Final = 3.0
"""Size of changes, in steps of a gauge a block, that say as much about the gain as the assumption that it is 1."""
_NEWEST: Final = 96
"""Newest blocks that do not say whether a series follows its node, as they may show its fault: eight hours."""
_LEAST_EXPLAINED: Final = 0.8
"""Share of the variance of hourly changes that the node explains where a series follows it."""
_STEADY_STEPS: Final = 1.5
"""Hourly changes, in steps of a gauge, of a series that has little to be explained."""


@dataclass(frozen=True, slots=True)
class BesideNode:
    """Series at the usual high level of their node.

    Attributes:
        values: Shape (n, b); NaN for blocks that are not compared, and for series that do not follow their node.
        misfit: Shape (n,), standard deviation of hours around their usual value, without a drift.
    """

    values: Floats
    misfit: Floats


def node_medians(values: Floats, groups: Ints) -> Floats:
    """Medians over the rows of each row's group, shape (n, b); NaN where fewer than `LEAST_GPUS` have a value.

    Args:
        values: Shape (n, b).
        groups: Shape (n,), number of the group of each row; negative for none.
    """
    medians = np.full(values.shape, np.nan)
    numbers, place, count = np.unique(groups, return_inverse=True, return_counts=True)
    large = (numbers >= 0) & (count >= LEAST_GPUS)
    order = np.argsort(place, kind="stable")
    member = np.empty(len(groups), np.int64)
    member[order] = np.arange(len(groups)) - np.repeat(np.cumsum(count) - count, count)
    for size in np.unique(count[large]).tolist():
        chosen = np.flatnonzero(large & (count == size))
        mine = np.isin(place, chosen)
        together = np.full((len(chosen), values.shape[1], size), np.nan)
        which = np.searchsorted(chosen, place[mine])
        together[which, :, member[mine]] = values[mine]
        found = row_medians(together.reshape(-1, size))
        found[np.isfinite(together).sum(axis=2).ravel() < LEAST_GPUS] = np.nan
        medians[mine] = found.reshape(len(chosen), -1)[which]
    return medians


def beside_node(values: Floats, node: Floats, resolution: Floats, everywhere: Bools) -> BesideNode:
    """Bring series to the usual high level of their node.

    Args:
        values: Shape (n, b), so directed that a rise is bad.
        node: Shape (n, b), medians of the node, on the same scale.
        resolution: Shape (n,), step of the gauge on that scale.
        everywhere: Shape (n,), whether blocks at a low level of the node are compared, too.
    """
    gain = _gain(values, node, resolution)[:, None]
    follows = _follows(values, values - gain * node, resolution)
    ordered = np.sort(node, axis=1)
    count = np.isfinite(ordered).sum(axis=1)
    low, high = (
        ordered[np.arange(len(node)), np.floor(share * np.maximum(count - 1, 0)).astype(np.int64)][:, None]
        for share in (1.0 - _HIGH_SHARE, _HIGH_SHARE)
    )
    loaded = everywhere[:, None] | (node >= low + _ALIKE_SHARE * (high - low))
    found = np.where(loaded & follows[:, None], values + gain * (high - node), np.nan)
    return BesideNode(found, _misfit(found))


def _gain(values: Floats, node: Floats, resolution: Floats) -> Floats:
    """By how much each series changes with its node, shape (n,); 1 where the node hardly changes."""
    moved, by_node = (one[:, _APART:] - one[:, :-_APART] for one in (values, node))
    both = np.isfinite(moved) & np.isfinite(by_node)
    moved, by_node = np.where(both, moved, 0.0), np.where(both, by_node, 0.0)
    weight = (_LEAST_CHANGE * resolution) ** 2 * _APART + 1e-12
    gain: Floats = ((moved * by_node).sum(axis=1) + weight) / ((by_node**2).sum(axis=1) + weight)
    return np.maximum(gain, 0.0)


def _follows(values: Floats, rest: Floats, resolution: Floats) -> Bools:
    """Whether the node explains the changes of each series, shape (n,), or it hardly changes."""
    places = np.arange(values.shape[1] - HOUR_BLOCKS)
    known = np.isfinite(rest)
    length = np.where(known.any(axis=1), known.shape[1] - np.argmax(known, axis=1), 0)
    kept = places < (places.size - np.minimum(_NEWEST, length // 2))[:, None]
    own, alone = (one[:, HOUR_BLOCKS:] - one[:, :-HOUR_BLOCKS] for one in (values, rest))
    kept &= np.isfinite(alone)
    own, alone = (np.where(kept, one, 0.0) ** 2 for one in (own, alone))
    unexplained, count = alone.sum(axis=1), kept.sum(axis=1)
    steady = unexplained <= (_STEADY_STEPS * resolution) ** 2 * count
    found: Bools = (count >= HOUR_BLOCKS) & (steady | (unexplained <= (1.0 - _LEAST_EXPLAINED) * own.sum(axis=1)))
    return found


def _misfit(found: Floats) -> Floats:
    """Standard deviation of hours around the neighbouring ones."""
    whole = found.shape[1] // HOUR_BLOCKS * HOUR_BLOCKS
    hourly = row_medians(found[:, found.shape[1] - whole :].reshape(-1, HOUR_BLOCKS)).reshape(len(found), -1)
    change = np.diff(hourly, axis=1)
    spread: Floats = MAD_TO_SIGMA / np.sqrt(2.0) * row_medians(np.abs(change - row_medians(change)[:, None]))
    return np.nan_to_num(spread)
