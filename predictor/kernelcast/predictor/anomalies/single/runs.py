"""Runs of equal events of one series: the arithmetic of `anomalies.runs` on scalars."""

import numpy as np

from kernelcast.predictor.anomalies import runs as batch
from kernelcast.predictor.anomalies.settings import AnomalySettings
from kernelcast.predictor.anomalies.single.schedule import Float32s, pair, share


class EventRun:
    """Length of the present run of an event, and how improbable that length is."""

    def __init__(self, count: Float32s, settings: AnomalySettings, max_rarity: float) -> None:
        self._least_share = np.float32(10**-max_rarity)
        self._weights = [list(one) for one in pair(share(batch.RATE_WEIGHT, count, 2), settings)]
        self._run = self._longest = self._share = np.float32(0)

    def surprise(self) -> np.float32:
        """-log10 of the probability of the run that an event at this row continues."""
        run = self._run + 1
        if not run > batch.RECORD_FACTOR * self._longest + 1:
            return np.float32(0)
        rarity: np.float32 = run * np.abs(np.log10(max(self._share, self._least_share)))
        return rarity

    def learn(self, row: int, frozen: int | None, *, event: bool) -> None:
        """Learn a row.

        Args:
            row: Its number.
            frozen: 1 inside an episode, else 0: which learning weight applies; None to learn no share of events.
            event: Whether the row has the event.
        """
        if not event:
            self._longest = max(self._longest * batch.RECORD_DECAY, self._run)
        if frozen is not None:
            self._share += self._weights[frozen][row] * (np.float32(event) - self._share)
        self._run = (self._run + 1) if event else np.float32(0)
