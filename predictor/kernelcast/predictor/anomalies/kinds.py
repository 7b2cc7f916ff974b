"""Kinds of anomalies."""

from enum import IntEnum


class AnomalyKind(IntEnum):
    """Kind of an episode: the evidence that was strongest when it opened."""

    NONE = 0  # no episode
    SPIKE = 1  # a jump from the fast level
    LEVEL_SHIFT = 2  # a jump that stays
    DRIFT = 3  # a deviation from the slow level without a jump
    SEASONAL = 4  # a deviation from the usual value at this time of the day or week
    FLATLINE = 5  # a value that does not change for unusually long
    MISSING = 6  # intervals without a value, for unusually long
