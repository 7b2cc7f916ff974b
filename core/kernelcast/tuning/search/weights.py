"""Learns the weights of the similarity, one trial at a time: `guided` calls `improve` after each observation."""

from collections.abc import Mapping, Sequence
from math import inf
from random import Random
from typing import Final

from kernelcast.tuning.search.settings import Settings
from kernelcast.tuning.search.similarity import WEIGHT_MAX, WEIGHT_MIN, Similarity
from kernelcast.tuning.search.surrogate import evidence

# Numbers of observations: below the first no weight is tried; up to the second all weights are tried twice at each
# call; up to the third once; up to the fourth one trial at every second call, beyond it at every fourth.
MIN_OBSERVATIONS: Final = 4
TWICE_UNTIL: Final = 10
ONCE_UNTIL: Final = 16
EVERY_SECOND_UNTIL: Final = 40
FACTORS: Final = (0.4, 2.5)
"""Factors by which a trial changes a weight."""


class WeightLearner:
    """Raises or lowers one weight after the other where that makes the observations more likely. For one thread.

    With few observations it tries all weights at each call; later it tries one, and not at every call, so that a
    suggestion stays cheap.
    """

    def __init__(self, similarity: Similarity, *, settings: Settings, random: Random) -> None:
        self._similarity = similarity
        self._settings = settings
        self._random = random
        self._trial = 0
        self._left = 0
        self._base = -inf
        self._points: list[tuple[int, ...]] = []
        self._values: list[float] = []

    def improve(self, logs: Mapping[int, float], places: Mapping[int, tuple[int, ...]]) -> bool:
        """Try weights; return whether one changed.

        Args:
            logs: Logarithms of times by configuration.
            places: The places of these configurations' values.
        """
        count, axes = len(logs), len(self._similarity.weights)
        if count < MIN_OBSERVATIONS or not axes or count > self._settings.learning_until:
            return False
        if count > ONCE_UNTIL and count % (2 if count <= EVERY_SECOND_UNTIL else 4):
            return False
        if count <= ONCE_UNTIL or not self._left:
            self._choose(logs, places)
        self._left -= 1
        trials = 2 * axes if count <= TWICE_UNTIL else axes if count <= ONCE_UNTIL else 1
        return sum(self._try() for _ in range(trials)) > 0

    def _choose(self, logs: Mapping[int, float], places: Mapping[int, tuple[int, ...]]) -> None:
        """Choose the observations to learn from: half the best ones, half random ones."""
        chosen: Sequence[int] = list(logs)
        if len(chosen) > self._settings.learning_points:
            ranked = sorted(chosen, key=logs.__getitem__)
            half = self._settings.learning_points // 2
            chosen = ranked[:half] + self._random.sample(ranked[half:], half)
        self._points = [places[ordinal] for ordinal in chosen]
        self._values = [logs[ordinal] for ordinal in chosen]
        self._base = evidence(self._similarity.tables(), self._similarity.weights, self._points, self._values)
        self._left = len(self._similarity.weights)

    def _try(self) -> bool:
        weights = self._similarity.weights
        axis = self._trial // len(FACTORS) % len(weights)
        weight = min(max(weights[axis] * FACTORS[self._trial % len(FACTORS)], WEIGHT_MIN), WEIGHT_MAX)
        self._trial += 1
        if weight == weights[axis]:
            return False
        changed = [*weights[:axis], weight, *weights[axis + 1 :]]
        value = evidence(self._similarity.tables(axis, weight), changed, self._points, self._values)
        if value <= self._base + 1e-9:
            return False
        self._base = value
        self._similarity.change(axis, weight)
        return True
