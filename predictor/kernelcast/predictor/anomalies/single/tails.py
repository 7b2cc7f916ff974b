"""Tails of the features of one series: the arithmetic of `anomalies.tails` on scalars."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kernelcast.predictor.anomalies import tails as batch
from kernelcast.predictor.anomalies.settings import AnomalySettings
from kernelcast.predictor.anomalies.single.schedule import Float32s, pair, share

_ZERO: Final = np.float32(0)
_HALF: Final = np.float32(0.5)
_TWO: Final = np.float32(2)


class Rates:
    """Weights of learning at each row, shared by the features with the same count of values."""

    def __init__(self, count: Float32s, settings: AnomalySettings) -> None:
        above = np.float32(1 - settings.quantile)
        moves = [one / above for one in pair(share(batch.QUANTILE_WEIGHT, count, 10), settings)]
        self.rise = [list((np.float32(1) - above) * one) for one in moves]
        self.fall = [list((np.float32(0) - above) * one) for one in moves]
        self.clusters = [list(one) for one in pair(share(batch.CLUSTER_WEIGHT, count, batch.CLUSTER_PRIOR), settings)]
        seen = above * count
        self.excess = [list(one) for one in pair(share(batch.EXCESS_WEIGHT, seen, batch.EXCESS_PRIOR_COUNT), settings)]
        self.early = (count < batch.EARLY_ROWS).tolist()


@dataclass(slots=True)
class Side:
    """State of the upper tail of a feature, or of its negative."""

    quantile: np.float32 = _ZERO
    mean: np.float32 = _ZERO
    record: np.float32 = _ZERO
    pending: np.float32 = _ZERO
    shape: np.float32 = _TWO
    above: bool = False
    peak: np.float32 | None = None
    """The present excess; None where there is none."""

    def learn_record(self, value: np.float32) -> None:
        """A cluster's largest value becomes a record when the cluster has ended."""
        if self.peak is not None:
            self.pending = max(self.pending, value) if self.above else max(_ZERO, value)
        elif self.above:
            self.record = max(self.record, self.pending)


@dataclass(slots=True)
class FeatureTails:
    """Both tails of a feature; `immediate` features see a single value rather than a mean of several."""

    clusters: np.float32
    immediate: bool
    sides: tuple[Side, Side] = field(default_factory=lambda: (Side(), Side()))


class Tails:
    """Tails of some features of one series."""

    def __init__(self, features: int, settings: AnomalySettings, *, immediate: int = 0) -> None:
        self._above = np.float32(1 - settings.quantile)
        self._margin = np.float32(1 + settings.record_margin)
        self._keep = np.float32(1 - settings.record_decay)
        self.features = [FeatureTails(self._above / 2, row < immediate) for row in range(features)]

    def find_peaks(self, values: tuple[np.float32, ...]) -> bool:
        """Note the excess of each side, and return whether there is any."""
        found = False
        for feature, value in zip(self.features, values, strict=True):
            upper, lower = feature.sides
            upper.peak = value - upper.quantile if value > upper.quantile else None
            lower.peak = -value - lower.quantile if -value > lower.quantile else None
            found = found or upper.peak is not None or lower.peak is not None
        return found

    def surprise(
        self, sided: tuple[int, int], value: np.float32, smallest: np.float32, count: np.float32, isolated: np.float32
    ) -> tuple[np.float32, np.float32]:
        """Improbability of one side of a feature, and the same where it is a new record; 0 without a peak."""
        place, side = sided
        feature = self.features[place]
        state = feature.sides[side]
        if state.peak is None or not value > smallest:
            return _ZERO, _ZERO
        scale = max(state.mean, batch.SCALE_SHARE * smallest) + batch.TINY
        shape = tail_shape(state.shape, self._above * count)
        ratio = min(state.peak / (scale * (1 - shape)), batch.LARGEST_RATIO)
        rarity = np.log10(1 + shape * ratio) / shape - np.log10(feature.clusters)
        if feature.immediate and not state.above:
            rarity = isolated * rarity
        return rarity, rarity if value > self._margin * state.record else _ZERO

    def forget(self) -> None:
        """Take a row on which nothing is learnt."""
        for feature in self.features:
            for side in feature.sides:
                side.record *= self._keep

    def learn(self, values: tuple[np.float32, ...], rates: Rates, row: int, frozen: int) -> None:
        """Take the features whose peaks were found last."""
        rise, fall = rates.rise[frozen][row], rates.fall[frozen][row]
        for feature, value in zip(self.features, values, strict=True):
            starts = _ZERO
            for side, own in zip(feature.sides, (value, -value), strict=True):
                side.record *= self._keep
                side.learn_record(own)
                mean = max(side.mean, batch.TINY)
                side.quantile += (fall if side.peak is None else rise) * mean
                if side.peak is not None:
                    starts += _ZERO if side.above else _HALF
                    if not rates.early[row]:
                        _learn_excess(side, rates.excess[frozen][row])
                side.above = side.peak is not None
                if rates.early[row]:
                    side.record = side.quantile = max(side.record, own)
                    side.mean = batch.EARLY_EXCESS * abs(side.record)
            feature.clusters += rates.clusters[frozen][row] * (starts - feature.clusters)


def _learn_excess(side: Side, step: np.float32) -> None:
    """Move the mean of a side's excesses and the side's shape on."""
    mean = side.mean
    excess = min(side.peak or _ZERO, batch.LARGEST_EXCESS * max(mean, batch.TINY))
    side.mean = mean + step * (excess - mean)
    relative = excess / max(side.mean, batch.TINY)
    side.shape += step * (relative * relative - side.shape)


def tail_shape(squares: np.float32, seen: np.float32) -> np.float32:
    """The tail's shape, as `anomalies.tails` computes it for many series."""
    raw = batch.SHAPE_FACTOR * 0.5 * (1 - 1 / max(squares - 1, np.float32(1e-3)))
    shrunk = (raw * seen + batch.SHAPE_PRIOR * batch.SHAPE_PRIOR_COUNT) / (seen + batch.SHAPE_PRIOR_COUNT)
    return min(max(shrunk, np.float32(batch.SHAPE_LIMITS[0])), np.float32(batch.SHAPE_LIMITS[1]))
