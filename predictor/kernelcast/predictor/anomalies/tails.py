"""Tail probabilities of features, learnt online: peaks over a quantile with a generalised Pareto tail.

How rare a value is follows from the past of the same feature of the same series, so that heavy tails, bursts and
autocorrelation raise the bar by themselves: the tail's scale and shape come from the excesses over a high quantile, and
its rate from the *clusters* of excesses, so that a slow feature, which stays above its quantile for long, is not counted
once per row.

Source: Siffer et al., "Anomaly Detection in Streams with Extreme Value Theory", KDD 2017 (there with a batch fit;
here with moments); Leadbetter, "On a basis for peaks over threshold modeling", 1991 (clusters).
"""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.anomalies.settings import AnomalySettings

Float32s: TypeAlias = NDArray[np.float32]
Bools: TypeAlias = NDArray[np.bool_]

_EARLY: Final = 30  # rows in which the largest value so far serves as the quantile
_QUANTILE_WEIGHT: Final = 1 / 3000
_EXCESS_WEIGHT: Final = 1 / 100
_CLUSTER_WEIGHT: Final = 1 / 2000
_LARGEST_EXCESS: Final = 10.0  # in mean excesses: one outlier moves the tail by a bounded amount
_SHAPE_PRIOR: Final = 0.15
_SHAPE_PRIOR_COUNT: Final = 40.0
_SEEN: Final = 20
_SHAPE_LIMITS: Final = (0.02, 0.6)
_TINY: Final = np.float32(1e-30)


class TailModel:
    """Upper tails of `features` and of their negatives, per series; arrays of shape (2, features, rows).

    Invariant: all state is float32 and has the scale of the feature or none.
    """

    def __init__(self, features: int, rows: int, settings: AnomalySettings) -> None:
        self._settings = settings
        self._above_share = np.float32(1 - settings.quantile)
        self.quantile: Float32s = np.zeros((2, features, rows), np.float32)
        self.excess: Float32s = np.zeros((2, features, rows), np.float32)
        self.record: Float32s = np.zeros((2, features, rows), np.float32)
        self.shape: Float32s = np.full((features, rows), 2.0, np.float32)  # mean squared excess by squared mean
        self.clusters: Float32s = np.full((features, rows), self._above_share / 2, np.float32)
        self.above: Bools = np.zeros((2, features, rows), np.bool_)

    def surprise(self, rows: slice, signed: Float32s, smallest: Float32s, count: Float32s) -> tuple[Float32s, Float32s]:
        """How improbable the features are, as -log10 of the probability per row.

        Args:
            rows: Which series.
            signed: Shape (2, features, n): the features and their negatives.
            smallest: Shape (n,), the smallest deviation that matters.
            count: Shape (n,), values that the series has had before.

        Returns:
            The same for every excess over the quantile, and for new records alone; 0 elsewhere. Shape of `signed`.
        """
        every = np.zeros_like(signed)
        quantile = self.quantile[:, :, rows]
        candidate = (signed > quantile) & (signed > smallest)
        sign, feature, row = np.nonzero(candidate)
        value = signed[sign, feature, row]
        scale = np.maximum(self.excess[:, :, rows][sign, feature, row], smallest[row]) + _TINY
        shape = self._tail_shape(self.shape[:, rows][feature, row], self._above_share * count[row])
        excess = value - quantile[sign, feature, row]
        ratio = excess / (scale * (1 - shape))
        cluster_rate = self.clusters[:, rows][feature, row]
        rarity = np.log10(1 + shape * ratio) / shape - np.log10(cluster_rate)
        every[sign, feature, row] = rarity
        new = np.zeros_like(signed)
        fresh = value > self.record[:, :, rows][sign, feature, row] * (1 + self._settings.record_margin)
        new[sign[fresh], feature[fresh], row[fresh]] = rarity[fresh]
        return every, new

    def learn(self, rows: slice, signed: Float32s, count: Float32s, weight: Float32s) -> None:
        """Move the tails on.

        Args:
            rows: Which series.
            signed: Shape (2, features, n).
            count: Shape (n,), values that the series has had before; 0 where the feature is not there yet.
            weight: Shape (n,), 0 where nothing is to be learnt, 1 for full speed.
        """
        quantile, mean, record = self.quantile[:, :, rows], self.excess[:, :, rows], self.record[:, :, rows]
        above = signed > quantile
        self._learn_clusters(rows, above, count, weight)
        self._learn_excesses(rows, signed, above, count, weight * (count >= _EARLY))
        rate = np.maximum(np.float32(_QUANTILE_WEIGHT), 1 / (count + 10)) * weight / self._above_share
        quantile += rate * np.maximum(mean, _TINY) * (above - self._above_share)
        np.maximum(record * np.float32(1 - self._settings.record_decay), signed, out=record, where=weight > 0)
        early = np.flatnonzero((count < _EARLY) & (weight > 0))
        if len(early):
            largest = record[:, :, early]
            quantile[:, :, early] = largest
            mean[:, :, early] = 0.3 * np.abs(largest)

    def _learn_clusters(self, rows: slice, above: Bools, count: Float32s, weight: Float32s) -> None:
        """Share of rows on which a feature rises above its quantile, mean of both sides."""
        starts = (above & ~self.above[:, :, rows]).sum(axis=0, dtype=np.float32) / 2
        np.copyto(self.above[:, :, rows], above, where=weight > 0)
        clusters = self.clusters[:, rows]
        clusters += np.maximum(np.float32(_CLUSTER_WEIGHT), 1 / (count + 200)) * weight * (starts - clusters)

    def _learn_excesses(self, rows: slice, signed: Float32s, above: Bools, count: Float32s, weight: Float32s) -> None:
        """Mean and shape of excesses, on the rows that have one."""
        sign, feature, row = np.nonzero(above & (weight > 0))
        mean = self.excess[:, :, rows][sign, feature, row]
        excess = signed[sign, feature, row] - self.quantile[:, :, rows][sign, feature, row]
        excess = np.minimum(excess, _LARGEST_EXCESS * np.maximum(mean, _TINY))
        seen = self._above_share * count[row]
        step = np.maximum(np.float32(_EXCESS_WEIGHT), 1 / (seen + _SEEN)) * weight[row]
        moved = mean + step * (excess - mean)
        self.excess[:, :, rows][sign, feature, row] = moved
        shape = self.shape[:, rows][feature, row]
        relative = excess / np.maximum(moved, _TINY)
        self.shape[:, rows][feature, row] = shape + step * (relative * relative - shape)

    @staticmethod
    def _tail_shape(squares: Float32s, seen: Float32s) -> Float32s:
        """The tail's shape by moments: 0 is exponential, 0.33 that of Student's t with three degrees.

        With few excesses `seen` it is drawn towards the prior.
        """
        raw = 0.5 * (1 - 1 / np.maximum(squares - 1, np.float32(1e-3)))
        least, most = _SHAPE_LIMITS
        drawn = (raw * seen + _SHAPE_PRIOR * _SHAPE_PRIOR_COUNT) / (seen + _SHAPE_PRIOR_COUNT)
        return np.clip(drawn, least, most).astype(np.float32)
