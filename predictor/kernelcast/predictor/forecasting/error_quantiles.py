"""Quantiles of forecasts from their own past errors at the same lead (split conformal).

Errors count relative to the size of the newest ones when their forecast was made, and grow with the size of the
newest ones now: a series that was quiet for a month and is restless today has wide bounds today (normalised conformal
prediction: Papadopoulos and others, Normalized nonconformity measures for regression conformal prediction, 2008).
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.forecasting.rolling import lagged, recent_mean

MIN_ERRORS: Final = 12
"""Errors that a method must have made before it has any weight."""
WINDOW_INTERVALS: Final = 4096
"""Quantiles are made of the errors of at most this many intervals."""
SKIPPED_SHARE: Final = 0.3
"""The first errors of a series were made with less history than the present forecast has: this share is left out."""
LEAST_ALIKE: Final = 300
"""Newest errors that count in any case: fewer say too little about a bound of 95 %, as neighbours are alike."""
UPDATES: Final = 128
"""An update comes when the intervals have grown by a 128th; more of them cost time and change little."""
SCALE_MEMORY_INTERVALS: Final = 72.0
"""Intervals after which an error has lost 63 % of its weight in the size of the newest ones."""
LARGEST_RATIO: Final = 8.0
"""Largest ratio, and smallest inverse one, of the newest errors to all that counts."""
MIDDLE: Final = (0.25, 0.75)
"""Levels between which the centre of a forecast lies; one that its own errors put elsewhere is biased."""
MIN_BLOCK: Final = 8
"""After t intervals the quantiles are computed again each `max(MIN_BLOCK, t / UPDATES)`, whatever comes later."""


class PastErrors:
    """Errors of the forecasts of one method or combination at one lead, and the quantiles that follow from them.

    Attributes:
        scales: Shape (n, t), size of the newest errors at each interval relative to all earlier ones; 1 unscaled.
    """

    def __init__(self, center: Floats, values: Floats, known: Bools, lead: int, *, scaled: bool = True) -> None:
        """Compute the errors.

        Args:
            center: Shape (n, t), the forecast made at each interval.
            values: Shape (n, t), without gaps.
            known: Shape (n, t), where there was a value.
            lead: Intervals from the origin to the forecast.
            scaled: Whether errors count relative to the size of the newest ones.
        """
        self._center, self._lead = center, lead
        errors = np.where(known, values - lagged(center, lead), np.nan)
        self.scales: Floats = recent_sizes(errors) if scaled else np.ones_like(errors)
        self._errors: Floats = errors / lagged(self.scales, lead)

    def quantiles(self, levels: Sequence[float], since: Ints | None = None) -> Floats:
        """Quantiles of the future values at every interval, shape (levels, n, t); NaN before `MIN_ERRORS` errors.

        Args:
            levels: Within 0..1.
            since: Shape (n, t), first origin whose error counts at each interval; None for all.
        """
        values = np.full((len(levels), *self._errors.shape), np.nan)
        for begin, end in _updates(self._errors.shape[1]):
            offsets = self._offsets(begin, levels, since)
            now = slice(begin, end)
            values[:, :, now] = self._center[:, now] + offsets[:, :, None] * self.scales[:, now]
        return values

    def quantiles_at(self, place: int, levels: Sequence[float], since: Ints | None = None) -> Floats:
        """One column of `quantiles`, shape (levels, n); NaN for a place before the first."""
        if place < 0:
            return np.full((len(levels), len(self._errors)), np.nan)
        begin = next(begin for begin, end in _updates(self._errors.shape[1]) if place < end)
        return self._center[:, place] + self._offsets(begin, levels, since) * self.scales[:, place]

    def _offsets(self, begin: int, levels: Sequence[float], since: Ints | None) -> Floats:
        """Quantiles, shape (levels, n), of the errors that are known at an interval and count there, unscaled."""
        oldest = max(int(begin * SKIPPED_SHARE), begin + 1 - WINDOW_INTERVALS)
        part = self._errors[:, oldest : begin + 1]
        if since is not None:
            first = np.minimum(since[:, begin] + self._lead, begin + 1 - LEAST_ALIKE - self._lead)
            part = np.where(np.arange(oldest, begin + 1) >= first[:, None], part, np.nan)
        return _row_quantiles(part, levels)


def unbiased(center: Floats, middle: Floats) -> Floats:
    """Centres moved into the middle half of their own distribution, so that no mean lies outside its own band.

    Args:
        center: Shape (...).
        middle: Quantiles at `MIDDLE`, shape (2, ...); NaN where too few errors are known.
    """
    clamped: Floats = np.fmin(np.fmax(center, middle[0]), middle[1])
    return clamped


def recent_sizes(errors: Floats) -> Floats:
    """Root of the ratio of the newest errors to all so far, at every interval, shape (n, t); 1 without errors.

    Args:
        errors: Shape (n, t), NaN where unknown.
    """
    known = np.isfinite(errors)
    size = np.where(known, np.abs(errors), 0.0)
    recent = recent_mean(size, known, SCALE_MEMORY_INTERVALS)
    with np.errstate(invalid="ignore", divide="ignore"):
        usual = np.cumsum(size, axis=1) / np.cumsum(known, axis=1)
        ratio = recent / usual
    sizes: Floats = np.sqrt(np.clip(np.where(usual > 0, ratio, 1.0), 1 / LARGEST_RATIO, LARGEST_RATIO))
    return sizes


def _updates(length: int) -> Iterator[tuple[int, int]]:
    """Yield the intervals at which quantiles are computed again, and the next such interval."""
    end = 0
    while end < length:
        begin, end = end, end + max(MIN_BLOCK, end // UPDATES)
        yield begin, end


def _row_quantiles(errors: Floats, levels: Sequence[float]) -> Floats:
    """Conformal quantiles of each row, shape (levels, n): of k errors, rank level*(k+1), within the k."""
    ordered = np.sort(errors, axis=1)  # NaN last
    counts = np.sum(~np.isnan(errors), axis=1)
    ranks = np.asarray(levels)[:, None] * (counts + 1) - 1
    ranks = np.clip(ranks, 0, np.maximum(counts - 1, 0))
    low = np.floor(ranks).astype(int)
    high = np.minimum(low + 1, np.maximum(counts - 1, 0))
    rows = np.arange(len(errors))[None]
    below, above = ordered[rows, low], ordered[rows, high]
    offsets: Floats = np.where(counts < MIN_ERRORS, np.nan, below + (above - below) * (ranks - low))
    return offsets
