"""Flagged series with their features, and the findings about them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.causes.regimes import WatchReason
from kernelcast.predictor.series.subjects import Subject
from kernelcast.wire.catalogue.meanings import Cause


class Abstention(StrEnum):
    """Reason for not predicting anything about a flagged series."""

    NO_THRESHOLD = "no_threshold"
    NO_BASELINE = "no_baseline"
    WIDE_BASELINE = "wide_baseline"
    RECOVERING = "recovering"
    SETTLING = "settling"
    LOAD_CHANGED = "load_changed"
    CLOCK_FELL = "clock_fell"
    PROGRAM_WIDE = "program_wide"
    REFILLING = "refilling"
    UNUSABLE_WINDOW = "unusable_window"
    OVER_BUDGET = "over_budget"


ABSTENTIONS: Final = tuple(Abstention)


@dataclass(frozen=True, slots=True)
class Case:
    """One flagged series.

    Attributes:
        row: Its row in the windows.
        generation: Of that row.
        subject: The series.
        watch: The degradation that it is checked for.
        window: Shape (points,), oldest first, NaN where missing or of an earlier regime.
        newest: Number of the last interval.
        span: Intervals that show the trend.
        level: Median of the most recent values.
        slope: Per interval; 0 where there is no drift.
        settling: The trend levels off.
        drift: A drift; otherwise the level alone is out of bounds.
        program_wide: Most kernels of its program changed at once.
        shared_device: Several programs run on its GPU.
    """

    row: int
    generation: int
    subject: Subject
    watch: WatchReason
    window: Floats
    newest: int
    span: int
    level: float
    slope: float
    settling: bool
    drift: bool
    program_wide: bool = False
    shared_device: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """Result for a flagged series: a cause and a threshold, or the reason to abstain.

    Attributes:
        cause: None where the predictor abstains.
        threshold: In the series' unit.
        abstention: None where there is a cause, or nothing to judge.
        evidence: Name and value of the figures that led to this finding, for the log.
    """

    cause: Cause | None = None
    threshold: float = float("nan")
    abstention: Abstention | None = None
    evidence: tuple[tuple[str, float], ...] = ()


def abstain(reason: Abstention) -> Finding:
    """A finding without a cause, with the reason to abstain."""
    return Finding(abstention=reason)
