"""Features of one kernel of a program on a GPU: its duration by its own past, by its peers, and since a deploy.

`causes.features` calls each function with the observed metrics. "x by y" is the ratio x / y.
"""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.causes.device_features import LEAST_BLOCKS, certainty_of, trend_of
from kernelcast.predictor.causes.find import FeatureColumn
from kernelcast.predictor.causes.observed import HOUR_SECONDS, Observed, before_version, changed_at, usual_low
from kernelcast.predictor.passage.baseline import OPENING_BLOCKS
from kernelcast.predictor.passage.series import BLOCK_SECONDS
from kernelcast.predictor.peers.compare import others_known, others_median
from kernelcast.predictor.peers.groups import PeerGroups
from kernelcast.predictor.robust import row_last, row_medians
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.features import Feature

Columns = dict[Feature, FeatureColumn]

OPENING_SECONDS: Final = OPENING_BLOCKS * BLOCK_SECONDS
"""First minutes of a process or version, which are not its usual speed."""
FEWEST_PEERS: Final = 3
"""Peers that a comparison needs."""
_SLOWER: Final = 1.1
"""Ratio to the usual duration from which a kernel on the GPU counts as slower."""
_LEAST_SECONDS: Final = 900.0
"""A baseline needs that much time before the last 5 minutes."""


def duration(seen: Observed) -> Columns:
    """Duration of the last 5 minutes by the usual one of the same version."""
    values = seen.get(kernel.DURATION)
    if values is None:
        return {}
    present, usual = seen.mean_now(values), _usual(seen, values)
    if seen.around.baseline is not None:
        usual = np.where(np.isfinite(seen.around.baseline), seen.around.baseline, usual)
    columns = {Feature.DURATION_RATIO: FeatureColumn(_ratio(present, usual), present, usual)}
    blocks = seen.blocks(values)
    if blocks.shape[1] >= LEAST_BLOCKS:
        certain = certainty_of(trend_of(blocks / np.where(usual > 0, usual, np.nan)[:, None], resolution=0.0))
        columns[Feature.DURATION_CERTAINTY] = FeatureColumn(certain, present, usual, HOUR_SECONDS * 2)
    return columns


def deploy(seen: Observed) -> Columns:
    """Duration since the last change of version, its first minutes left out, by that before it."""
    values, version = seen.get(kernel.DURATION), seen.around.version
    if values is None or version is None:
        return {}
    at = changed_at(version)[:, None]
    places = np.arange(values.shape[1])
    opening = seen.intervals(OPENING_SECONDS)
    after = row_medians(np.where(places >= at + opening, values, np.nan))
    before = usual_low(np.where(places < at, values, np.nan))
    figure = np.where(at[:, 0] > 0, _ratio(after, before), np.nan)
    return {Feature.DEPLOY_RATIO: FeatureColumn(figure, after, before, values.shape[1] * seen.interval_seconds)}


def process(seen: Observed) -> Columns:
    """Age of the program's process; not known where it is older than the values."""
    numbers = seen.around.process
    if numbers is None:
        return {}
    at = changed_at(numbers)
    age = np.where(at > 0, (numbers.shape[1] - at) * seen.interval_seconds, np.nan)
    return {Feature.PROCESS_AGE: FeatureColumn.plain(age)}


def neighbours(seen: Observed) -> Columns:
    """Programs on the GPU, and the share of its kernels that are slower than usual, this one included."""
    columns: Columns = {}
    if seen.around.programs is not None:
        columns[Feature.PROGRAMS] = FeatureColumn.plain(
            row_last(seen.around.programs[:, -seen.intervals(BLOCK_SECONDS) :])
        )
    values, siblings = seen.get(kernel.DURATION), seen.around.siblings
    if values is not None:
        own = values[:, None]
        every = own if siblings is None else np.concatenate([own, siblings], axis=1)
        flat = every.reshape(-1, every.shape[2])
        ratio = _ratio(seen.mean_now(flat), _usual(seen, flat, kernels=every.shape[1])).reshape(len(seen), -1)
        known = np.isfinite(ratio)
        slower = (known & (ratio >= _SLOWER)).sum(axis=1)
        share = np.where(known.any(axis=1), slower / np.maximum(known.sum(axis=1), 1), np.nan)
        columns[Feature.MOVED_SHARE] = FeatureColumn.plain(share)
    return columns


def peers(seen: Observed) -> Columns:
    """Duration by the median of the peers at the same moment."""
    values, group = seen.get(kernel.DURATION), seen.around.group
    if values is None or group is None:
        return {}
    present = seen.mean_now(values)
    usual = peer_ratio(present, PeerGroups.of(group))[1]
    return {Feature.PEER_RATIO: FeatureColumn(_ratio(present, usual), present, usual)}


def fleet(seen: Observed) -> Columns:
    """Usual duration, and usual clock of the GPU, by those of other nodes."""
    values, around = seen.get(kernel.DURATION), seen.around
    if values is None or around.fleet is None:
        return {}
    own = row_medians(values) if around.baseline is None else around.baseline
    span_seconds = values.shape[1] * seen.interval_seconds
    columns = {Feature.FLEET_RATIO: FeatureColumn(_ratio(own, around.fleet), own, around.fleet, span_seconds)}
    if around.clock is not None and around.fleet_clock is not None:
        ratio = _ratio(around.clock, around.fleet_clock)
        columns[Feature.FLEET_CLOCK_RATIO] = FeatureColumn(ratio, around.clock, around.fleet_clock, span_seconds)
    return columns


def peer_ratio(values: Floats, groups: PeerGroups) -> tuple[Floats, Floats]:
    """Each value by the median of its peers, and that median, both of shape (n,); NaN with fewer than three peers.

    Args:
        values: Shape (n,), of one moment.
        groups: Which of them are peers.
    """
    grid = groups.grid(values)
    reference = np.where(others_known(grid) >= FEWEST_PEERS, others_median(grid), np.nan)
    own = groups.members(reference)
    return _ratio(values, own), own


def _usual(seen: Observed, values: Floats, kernels: int = 1) -> Floats:
    """Usual duration of the present version, from values older than 5 minutes."""
    width = seen.intervals(BLOCK_SECONDS)
    past = values[:, :-width]
    if seen.around.version is not None:
        former = before_version(seen.around.version, seen.intervals(OPENING_SECONDS))[:, :-width]
        past = np.where(np.repeat(former, kernels, axis=0), np.nan, past)
    usual = usual_low(past) if past.shape[1] else np.full(len(values), np.nan)
    usual[np.isfinite(past).sum(axis=1) < seen.intervals(_LEAST_SECONDS)] = np.nan
    return usual


def _ratio(value: Floats, reference: Floats) -> Floats:
    return value / np.where(reference > 0, reference, np.nan)
