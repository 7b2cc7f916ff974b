"""Results of a cycle: predictions to be published, reasons for abstaining, and the cycle's cost.

`Publication` fills them; `publish` writes predictions to Kafka, `alarms` takes candidates, `measures` counts all.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from kernelcast.predictor.series.subjects import DeviceKey, Subject
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import EndReason, Finding, FindingEvidence, Severity

Bounds = tuple[float, float, float]
"""Mean, lower and upper bound."""


class Abstention(StrEnum):
    """Reason for not predicting anything about a series that has a limit."""

    NO_THRESHOLD = "no_threshold"  # the limit of a device metric is not known
    NO_BASELINE = "no_baseline"  # the usual duration of a kernel is not learnt yet
    WIDE_BASELINE = "wide_baseline"  # durations vary too much for a usual one
    UNUSABLE_WINDOW = "unusable_window"  # fewer blocks than an evaluation needs
    CLOCK_FELL = "clock_fell"  # a kernel is slow because its GPU's clock is lower than usual
    COMPANIONS_LATE = "companions_late"  # the samples of its GPU have not arrived yet
    PROGRAM_WIDE = "program_wide"  # most kernels of the program changed at once, which may be a deploy
    OVER_BUDGET = "over_budget"  # more series than max_fits_per_sweep were to be forecast
    CALENDAR = "calendar"  # predictor.calendar has a period for it now


ABSTENTIONS: Final = tuple(Abstention)
"""All reasons, whose counters start at 0."""


@dataclass(frozen=True, slots=True)
class Degradation:
    """A limit that a series reaches, or has passed.

    Attributes:
        cause: Why.
        threshold: The limit, in the series' unit.
        probability: Of a breach within each horizon in seconds; 1 while the limit is passed.
        seconds: Time until a share of the probability has reached the limit, by that share; absent where it never does
            within a day; 0 while the limit is passed.
        passed: Whether the limit is passed now.
        crossed_ns: When it was passed for the first time since the alert began, Unix nanoseconds; 0 if it was not.
        firing: Whether the alert rule fires.
        severity: Urgency of its finding.
        evidence: The facts that show the cause; empty where it is the metric's own.
    """

    cause: Cause
    threshold: float
    probability: Mapping[float, float]
    seconds: Mapping[float, float]
    passed: bool = False
    crossed_ns: int = 0
    firing: bool = False
    severity: Severity = Severity.PAGE
    evidence: tuple[FindingEvidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Prediction:
    """Everything that is published about one series.

    Attributes:
        row: Its row in the windows.
        subject: The series.
        end_ns: End of the newest block that the forecast rests on, Unix nanoseconds; its age counts from there.
        value: Mean of that block.
        bounds: Forecast by horizon in seconds, for those that its history allows.
        degradation: None where nothing points to a breach.
    """

    row: int
    subject: Subject
    end_ns: int
    value: float
    bounds: Mapping[float, Bounds]
    degradation: Degradation | None = None


@dataclass(slots=True)
class CycleReport:
    """Result and cost of one cycle.

    Attributes:
        predictions: To be published.
        candidates: Candidate findings: one for each series with an alert, and for each observed fault.
        deploys_over: Programs of which no kernel is slower since a deploy any more, with the reason.
        programs: Program that runs alone on each GPU.
        time_ns: Event time of the cycle, later than that of the one before unless the hosts' clocks were set back;
            0 before a series has reported.
        watched: Series that have a limit.
        evaluated: Series whose newest block was evaluated.
        judged: Series with a limit whose history suffices to say whether a breach is probable.
        flagged: Series with an alert or a probable breach.
        abstentions: Evaluated series without a prediction, by reason.
        forecasts: Series that were forecast.
        forecast_seconds: Time that forecasts took.
        regimes_begun: Series for which a new regime began.
        seconds: Duration of the cycle.
    """

    predictions: list[Prediction] = field(default_factory=list)
    candidates: list[Finding] = field(default_factory=list)
    deploys_over: Mapping[str, EndReason] = field(default_factory=dict)
    programs: Mapping[DeviceKey, str] = field(default_factory=dict)
    time_ns: int = 0
    watched: int = 0
    evaluated: int = 0
    judged: int = 0
    flagged: int = 0
    abstentions: Counter[Abstention] = field(default_factory=Counter)
    forecasts: int = 0
    forecast_seconds: float = 0.0
    regimes_begun: int = 0
    seconds: float = 0.0
