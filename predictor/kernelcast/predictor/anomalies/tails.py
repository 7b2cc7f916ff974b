"""Tail probabilities of features, learnt online: peaks over a quantile with a generalised Pareto tail.

`EvidenceModel` asks for the improbability of the newest features, and lets the model learn them afterwards. It follows
from the past of the same feature of the same series: with heavy tails or bursts a value must be farther out. The tail's
scale and shape come from the excesses over a high quantile. Its rate comes from the *clusters* of excesses, so that a
slow feature, which stays above its quantile for long, is not counted once per row. The *record*, the largest value so
far, is updated when a cluster has ended: a slow rise stays above its record.

Source: Siffer et al., "Anomaly Detection in Streams with Extreme Value Theory", KDD 2017 (there with a batch fit;
here with moments); Leadbetter, "On a basis for peaks over threshold modeling", 1991 (clusters).
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.anomalies.settings import AnomalySettings
from kernelcast.predictor.arrays import Bools, Ints

Float32s: TypeAlias = NDArray[np.float32]

EARLY_ROWS: Final = 30  # rows in which the largest value so far serves as the quantile
QUANTILE_WEIGHT: Final = 1 / 3000
"""Weight of the newest value in the quantile, the excesses' mean and shape, and the clusters' rate, each at least."""
EXCESS_WEIGHT: Final = 1 / 300
CLUSTER_WEIGHT: Final = 1 / 2000
LARGEST_EXCESS: Final = 10.0  # in mean excesses: one outlier moves the tail by a bounded amount
SHAPE_PRIOR: Final = 0.3
"""Shape that is assumed with few excesses; it weighs as much as `SHAPE_PRIOR_COUNT` of them."""
SHAPE_PRIOR_COUNT: Final = 40.0
SHAPE_FACTOR: Final = 1.8
"""Bounded excesses make the shape by moments too small: that of Student's t with three degrees is 0.2, not 0.33."""
EXCESS_PRIOR_COUNT: Final = 20
"""Excesses that the first guess of their mean counts for."""
SHAPE_LIMITS: Final = (0.02, 0.7)
"""Bounds of the shape: nearly exponential, and a tail whose variance is infinite but whose mean is not."""
SCALE_SHARE: Final = 0.25  # of the smallest deviation that matters: the smallest scale of a tail
CLUSTER_PRIOR: Final = 200  # values that the first rate of clusters counts for
LARGEST_RATIO: Final = np.float32(1e9)
EARLY_EXCESS: Final = np.float32(0.3)  # of the largest value: the first guess of the mean excess
TINY: Final = np.float32(1e-30)


@dataclass(frozen=True, slots=True)
class Peaks:
    """Excesses of a block of series over their quantiles.

    Attributes:
        start: The block's first series.
        signed: Shape (2, features, n): the features and their negatives.
        above: Shape (2 * features, n), where there is an excess.
        side: Shape (peaks,), row of `above`: feature, or number of features + feature for the negative.
        row: Shape (peaks,), series within the block.
        excess: Shape (peaks,), above 0.
    """

    start: int
    signed: Float32s
    above: Bools
    side: Ints
    row: Ints
    excess: Float32s


class TailModel:
    """Upper tails of `features` and of their negatives, per series; state of shape (2 * features, rows).

    Invariant: all state is float32 and has the unit of the feature or none.
    """

    def __init__(self, features: int, rows: int, settings: AnomalySettings, *, immediate: int = 0) -> None:
        """Begin without any knowledge.

        Args:
            features: How many.
            rows: How many series.
            settings: Settings for all series.
            immediate: How many of the features, the first ones, see a single value rather than a mean of several.
        """
        self._features = features
        self._immediate = immediate
        self._margin = np.float32(1 + settings.record_margin)
        self._keep = np.float32(1 - settings.record_decay)
        self._above_share = np.float32(1 - settings.quantile)
        sides = 2 * features
        self._quantile: Float32s = np.zeros((sides, rows), np.float32)
        self._excess: Float32s = np.zeros((sides, rows), np.float32)
        self._record: Float32s = np.zeros((sides, rows), np.float32)
        self._pending: Float32s = np.zeros((sides, rows), np.float32)  # largest of the present cluster
        self._above: Bools = np.zeros((sides, rows), np.bool_)
        self._shape: Float32s = np.full((sides, rows), 2.0, np.float32)  # mean squared excess by squared mean
        self._clusters: Float32s = np.full((features, rows), self._above_share / 2, np.float32)

    def peaks(self, rows: slice, features: Float32s) -> Peaks:
        """Find the excesses of the features, shape (features, n)."""
        signed = np.concatenate([features, -features])
        quantile = self._quantile[:, rows]
        above = signed > quantile
        side, row = np.divmod(np.flatnonzero(above), signed.shape[1])
        excess = signed[side, row] - quantile[side, row]
        return Peaks(rows.start, signed, above, side, row, excess)

    def surprise(
        self, peaks: Peaks, smallest: Float32s, count: Float32s, isolated: Float32s
    ) -> tuple[Float32s, Float32s]:
        """Improbability of the features, -log10 of the probability per row.

        Args:
            peaks: Of a block of series.
            smallest: Shape (n,), the smallest deviation that matters.
            count: Shape (n,), values that the series has had before.
            isolated: Shape (n,), factor on the first value off of an immediate feature.

        Returns:
            The same for every peak, and for new records alone; 0 elsewhere. Shape (2, features, n).
        """
        every, new = np.zeros((2, *peaks.signed.shape), np.float32)
        value = peaks.signed[peaks.side, peaks.row]
        chosen = np.flatnonzero(value > smallest[peaks.row])
        side, row, value = peaks.side[chosen], peaks.row[chosen], value[chosen]
        feature, series = side % self._features, row + peaks.start
        scale = np.maximum(self._excess[side, series], SCALE_SHARE * smallest[row]) + TINY
        shape = _tail_shape(self._shape[side, series], self._above_share * count[row])
        with np.errstate(over="ignore"):
            ratio = np.minimum(peaks.excess[chosen] / (scale * (1 - shape)), LARGEST_RATIO)
        rarity = np.log10(1 + shape * ratio) / shape - np.log10(self._clusters[feature, series])
        first_off = ~self._above[side, series] & (feature < self._immediate)
        rarity = np.where(first_off, isolated[row] * rarity, rarity)
        every[side, row] = rarity
        new[side, row] = np.where(value > self._margin * self._record[side, series], rarity, np.float32(0))
        return every.reshape(2, self._features, -1), new.reshape(2, self._features, -1)

    def learn(self, rows: slice, peaks: Peaks, count: Float32s, weight: Float32s) -> None:
        """Let the tails learn the newest features.

        Args:
            rows: Which series.
            peaks: The peaks of these series.
            count: Shape (n,), values that the series has had before; 0 where the feature is not there yet.
            weight: Shape (n,), 0 where nothing is to be learnt, 1 for full speed.
        """
        self._learn_records(rows, peaks, weight)
        self._learn_clusters(rows, peaks.above, count, weight)
        quantile, mean = self._quantile[:, rows], self._excess[:, rows]
        rate = np.maximum(np.float32(QUANTILE_WEIGHT), 1 / (count + 10)) * weight / self._above_share
        quantile += (peaks.above - self._above_share) * rate * np.maximum(mean, TINY)
        self._learn_excesses(peaks, count, weight * (count >= EARLY_ROWS))
        early = np.flatnonzero((count < EARLY_ROWS) & (weight > 0))
        if len(early):
            record = self._record[:, rows]
            largest = np.maximum(record[:, early], peaks.signed[:, early])
            record[:, early] = quantile[:, early] = largest
            mean[:, early] = EARLY_EXCESS * np.abs(largest)

    def _learn_records(self, rows: slice, peaks: Peaks, weight: Float32s) -> None:
        """A cluster's largest value becomes a record when the cluster has ended."""
        learnt = weight > 0
        before, record = self._above[:, rows], self._record[:, rows]
        record *= self._keep
        side, row = np.divmod(np.flatnonzero(before & ~peaks.above & learnt), peaks.signed.shape[1])
        series = row + peaks.start
        self._record[side, series] = np.maximum(self._record[side, series], self._pending[side, series])
        side, row = peaks.side, peaks.row
        series = row + peaks.start
        old = self._pending[side, series]
        largest = np.maximum(old * before[side, row], peaks.signed[side, row])
        self._pending[side, series] = np.where(learnt[row], largest, old)

    def _learn_clusters(self, rows: slice, above: Bools, count: Float32s, weight: Float32s) -> None:
        """Share of rows on which a feature rises above its quantile, mean of both sides."""
        before = self._above[:, rows]
        starts = (above & ~before).reshape(2, self._features, -1).sum(axis=0, dtype=np.float32) / 2
        np.copyto(before, above, where=weight > 0)
        clusters = self._clusters[:, rows]
        clusters += np.maximum(np.float32(CLUSTER_WEIGHT), 1 / (count + CLUSTER_PRIOR)) * weight * (starts - clusters)

    def _learn_excesses(self, peaks: Peaks, count: Float32s, weight: Float32s) -> None:
        """Mean and shape of excesses, of the series that have one."""
        chosen = np.flatnonzero(weight[peaks.row] > 0)
        side, row = peaks.side[chosen], peaks.row[chosen]
        series = row + peaks.start
        mean = self._excess[side, series]
        excess = np.minimum(peaks.excess[chosen], LARGEST_EXCESS * np.maximum(mean, TINY))
        seen = self._above_share * count[row]
        step = np.maximum(np.float32(EXCESS_WEIGHT), 1 / (seen + EXCESS_PRIOR_COUNT)) * weight[row]
        moved = mean + step * (excess - mean)
        self._excess[side, series] = moved
        shape = self._shape[side, series]
        relative = excess / np.maximum(moved, TINY)
        self._shape[side, series] = shape + step * (relative * relative - shape)


def _tail_shape(squares: Float32s, seen: Float32s) -> Float32s:
    """The tail's shape by moments: 0 is exponential, 0.33 that of Student's t with three degrees.

    With few excesses `seen` it is drawn towards the prior.
    """
    raw = SHAPE_FACTOR * 0.5 * (1 - 1 / np.maximum(squares - 1, np.float32(1e-3)))
    shrunk = (raw * seen + SHAPE_PRIOR * SHAPE_PRIOR_COUNT) / (seen + SHAPE_PRIOR_COUNT)
    return np.clip(shrunk, *SHAPE_LIMITS).astype(np.float32)
