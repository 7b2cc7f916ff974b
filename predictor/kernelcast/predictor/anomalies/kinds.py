"""Kinds of anomalies."""

from enum import IntEnum


class AnomalyKind(IntEnum):
    """The evidence that is strongest in an episode."""

    NONE = 0
    SPIKE = 1
    LEVEL_SHIFT = 2
    DRIFT = 3
    SEASONAL = 4
    FLATLINE = 5
    MISSING = 6
