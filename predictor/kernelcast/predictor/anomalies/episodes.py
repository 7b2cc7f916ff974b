"""Episodes: stretches in which a series deviates; each has one alarm, however long it lasts.

`AnomalyDetector.step` calls it with the scores of an interval, after the evidence was gathered.
"""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.anomalies.settings import AnomalySettings
from kernelcast.predictor.arrays import Bools

Float32s: TypeAlias = NDArray[np.float32]

NEVER: Final = 1e9
"""Intervals since an onset that never was."""
BELOW_ALARM: Final = np.float32(0.99)
"""Largest score that is published without an alarm; 1 means act."""


class Episodes:
    """Begin, duration and end of the present episode of each series. Not safe for several threads.

    An episode opens at the score `notice` and is *acute* from its first interval with a score of at least 1. Both
    intervals have an onset; the second is the one alarm of the episode. For `refractory` intervals after an onset no
    other one is reported, except the first acute one.

    Attributes:
        age: Shape (rows,), intervals since the episode opened; 0 outside of episodes.
    """

    def __init__(self, rows: int, settings: AnomalySettings) -> None:
        self._settings = settings
        self.age: Float32s = np.zeros(rows, np.float32)
        self._acute: Bools = np.zeros(rows, np.bool_)
        self._calm: Float32s = np.zeros(rows, np.float32)
        self._since_notice: Float32s = np.full(rows, NEVER, np.float32)
        self._since_alarm: Float32s = np.full(rows, NEVER, np.float32)

    def learning(self, rows: slice) -> Float32s:
        """Factor on learning: small inside an episode until its state is adopted as normal. Shape (n,)."""
        age = self.age[rows]
        inside = (age > 0) & (age < self._settings.adoption)
        return np.where(inside, np.float32(self._settings.frozen), np.float32(1))

    def pass_interval(self, rows: slice) -> tuple[Float32s, Float32s]:
        """Count an interval without any evidence, for series outside of episodes; returns score and onset, 0."""
        for since in (self._calm, self._since_notice, self._since_alarm):
            since[rows] += 1
        nothing: Float32s = np.zeros(len(self.age[rows]), np.float32)
        return nothing, nothing

    def step(
        self, rows: slice, every: Float32s, new: Float32s, alarming: tuple[Float32s, Float32s]
    ) -> tuple[Float32s, Float32s]:
        """Open, continue or end the episodes by the scores of one interval.

        Args:
            rows: Which series.
            every: Shape (n,), the score of the present evidence.
            new: Shape (n,), the same where it exceeds all earlier evidence of the series; else 0.
            alarming: The same two for an alarm, in which values within the earlier range have less weight.

        Returns:
            The published score, at least 1 within an acute episode while there is evidence: after a huge value, as of
            1e9 standard deviations, also for the normal values that follow, over some 100 intervals; and the onset.
        """
        settings = self._settings
        inside = self.age[rows] > 0
        is_opening = ~inside & (new >= settings.notice)
        adopted = self.age[rows] >= settings.adoption
        off = is_opening | (inside & (every >= np.where(adopted, settings.notice, settings.hysteresis)))
        calm = np.where(off, np.float32(0), self._calm[rows] + 1)
        continues = is_opening | (inside & (calm < settings.calm))
        self.age[rows] = np.where(continues, self.age[rows] + 1, 0)
        self._calm[rows] = calm
        alarm = continues & ~self._acute[rows] & (np.where(inside, *alarming) >= 1)
        self._acute[rows] = continues & (self._acute[rows] | alarm)
        published = np.where(continues, every, new)
        published = np.where(self._acute[rows], published, np.minimum(published, BELOW_ALARM))
        onset = self._onsets(rows, is_opening & ~alarm, alarm, published)
        score = np.where(self._acute[rows] & off, np.maximum(published, 1), published)
        return score, onset

    def _onsets(self, rows: slice, is_opening: Bools, alarm: Bools, score: Float32s) -> Float32s:
        settings = self._settings
        noticed, alarmed = self._since_notice[rows], self._since_alarm[rows]
        alarms_now = alarm & (alarmed >= settings.refractory)
        reported = alarms_now | (is_opening & (np.minimum(noticed, alarmed) >= settings.refractory))
        np.copyto(noticed, np.where(reported, 0, noticed + 1))
        np.copyto(alarmed, np.where(alarms_now, 0, alarmed + 1))
        return np.where(reported, score, np.float32(0))
