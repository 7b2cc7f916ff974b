"""Runs of one event in consecutive intervals: no value, or a value equal to the one before. `EvidenceModel` uses it."""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Bools

Float32s: TypeAlias = NDArray[np.float32]

RATE_WEIGHT: Final = np.float32(1 / 500)
"""Weight of the newest interval in the share of intervals that have the event."""
RECORD_DECAY: Final = np.float32(1 - 5e-5)
"""Factor on the longest run for each interval without the event, so that old runs are forgotten."""
RECORD_FACTOR: Final = np.float32(1.5)
"""A run counts once it is longer than this multiple of the longest one before."""


class RunModel:
    """Length of the present run of an event, and how improbable that length is for the series.

    With a share q of intervals that have the event, a run of k has the probability q^k. A run counts only once it is
    half as long again as the longest one before, so that regular gaps are normal.
    """

    def __init__(self, rows: int, max_rarity: float) -> None:
        """Begin with series that never had the event.

        Args:
            rows: How many series.
            max_rarity: Largest -log10 of the probability of one interval.
        """
        self._least_share = np.float32(10**-max_rarity)
        self._run: Float32s = np.zeros(rows, np.float32)
        self._longest: Float32s = np.zeros(rows, np.float32)
        self._share: Float32s = np.zeros(rows, np.float32)

    def surprise(self, rows: slice, event: Bools) -> Float32s:
        """-log10 of the probability of the run that the event continues; 0 without the event. Shapes (n,)."""
        run = (self._run[rows] + 1) * event
        rarity = np.zeros_like(run)
        long = np.flatnonzero(run > RECORD_FACTOR * self._longest[rows] + 1)
        rarity[long] = run[long] * np.abs(np.log10(np.maximum(self._share[rows][long], self._least_share)))
        return rarity

    def learn(self, rows: slice, event: Bools, count: Float32s, weight: Float32s) -> None:
        """Learn the newest interval. A run is learnt only when it has ended: a fault that lasts stays improbable.

        Args:
            rows: Which series.
            event: Shape (n,).
            count: Shape (n,), values so far.
            weight: Shape (n,), factor on learning.
        """
        run, longest, share = self._run[rows], self._longest[rows], self._share[rows]
        np.copyto(longest, np.maximum(longest * RECORD_DECAY, run), where=~event)
        share += np.maximum(RATE_WEIGHT, 1 / (count + 2)) * weight * (event - share)
        np.copyto(run, (run + 1) * event)
