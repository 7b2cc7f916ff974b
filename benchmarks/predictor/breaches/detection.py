"""Scores of alerts on simulated series: recall, lead, false alarms, and the delay after contention."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from benchmarks.predictor.simulation.scenario import CLASSES, NEVER, Scenarios

from kernelcast.predictor.arrays import Bools, Floats, Ints

LEAST_LEAD_MINUTES: Final = 15.0
LONGEST_DELAY_MINUTES: Final = 3.0


@dataclass(frozen=True, slots=True)
class Detection:
    """Alerts compared with the truth.

    Attributes:
        lead_minutes: Shape (n,), from the first alert since the onset to the breach; -inf without an alert.
        episodes: Shape (n,), alerts that begin during the evaluation.
        early: Shape (n,), those of them that begin before the onset.
    """

    lead_minutes: Floats
    episodes: Ints
    early: Ints


def detect(scenarios: Scenarios, alerts: Bools) -> Detection:
    """Compare alerts with the truth.

    Args:
        scenarios: The series.
        alerts: Shape (n, t), whether the alert fires at an interval; only the evaluation counts.
    """
    firing = alerts[:, scenarios.history :]
    begins = firing & ~np.pad(firing, ((0, 0), (1, 0)))[:, :-1]
    onset = np.where(scenarios.onset == NEVER, scenarios.history, scenarios.onset) - scenarios.history
    places = np.arange(firing.shape[1])
    since_onset = firing & (places >= onset[:, None])
    first = np.where(since_onset.any(axis=1), np.argmax(since_onset, axis=1), np.inf)
    breach = scenarios.breach - scenarios.history
    minutes = scenarios.interval_seconds / 60.0
    lead = np.where(scenarios.breach == NEVER, np.nan, (breach - first) * minutes)
    early = (begins & (places < onset[:, None])).sum(axis=1)
    return Detection(lead, begins.sum(axis=1), np.where(scenarios.onset == NEVER, 0, early))


def score(scenarios: Scenarios, alerts: Bools) -> dict[str, Any]:
    """Score a detector's alerts.

    Args:
        scenarios: The series.
        alerts: Shape (n, t), whether the alert fires at an interval.

    Returns:
        Figures ready for JSON; `classes` has the same for each class. None where no series can have a figure.
    """
    found = detect(scenarios, alerts)
    drift, negative, contention = scenarios.is_drift, scenarios.is_negative, scenarios.is_contention
    timely = found.lead_minutes >= LEAST_LEAD_MINUTES
    prompt = found.lead_minutes >= -LONGEST_DELAY_MINUTES
    return {
        "drifts": int(drift.sum()),
        "negatives": int(negative.sum()),
        "breached_negatives": int((~scenarios.is_negative & (scenarios.onset == NEVER)).sum()),
        "recall": _mean(timely[drift]),
        "median_lead_minutes": _median(found.lead_minutes[drift & timely]),
        "false_alarms_per_series_day": _rate(found.episodes[negative], scenarios.days[negative]),
        "alarms_before_onset_per_series_day": _rate(found.early[drift], scenarios.days[drift]),
        "contention": int(contention.sum()),
        "contention_within_3_minutes": _mean(prompt[contention]),
        "contention_delay_minutes": _median(-found.lead_minutes[contention]),
        "classes": {name: _of_class(scenarios, found, name) for name in CLASSES if name in scenarios.classes},
    }


def _of_class(scenarios: Scenarios, found: Detection, name: str) -> dict[str, Any]:
    mine = scenarios.classes == name
    breaching = mine & (scenarios.breach != NEVER)
    judged = mine & (breaching if (scenarios.onset[mine] != NEVER).any() else scenarios.is_negative)
    timely = breaching & (found.lead_minutes >= LEAST_LEAD_MINUTES)
    is_fault = bool((scenarios.onset[mine] != NEVER).any())
    return {
        "series": int(judged.sum()),
        "recall": _mean(timely[judged]) if is_fault else None,
        "median_lead_minutes": _median(found.lead_minutes[timely]) if is_fault else None,
        "false_alarms_per_series_day": None if is_fault else _rate(found.episodes[judged], scenarios.days[judged]),
    }


def _mean(values: Bools) -> float | None:
    return round(float(values.mean()), 4) if values.size else None


def _median(values: Floats) -> float | None:
    if not values.size:
        return None
    middle = float(np.median(values))
    return round(middle, 2) if np.isfinite(middle) else None


def _rate(count: Ints, days: Floats) -> float | None:
    return round(float(count.sum() / days.sum()), 4) if count.size else None
