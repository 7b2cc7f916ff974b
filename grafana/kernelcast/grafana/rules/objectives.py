"""Service-level objectives of the pipeline itself, and alerts on the rate at which their error budgets are spent."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.addresses import PIPELINE
from kernelcast.grafana.rules.model import HOUR, MINUTE, AlertRule, AlertSeverity, Profile, RecordingRule, lately
from kernelcast.grafana.rules.model import duration as as_duration
from kernelcast.wire.catalogue import bridge, exporter, runtime

FRESH_SECONDS: Final = 30.0
"""Age at which a point must be ready for a scrape; a bound of the histogram's buckets."""
_WINDOWS: Final = (
    (HOUR, 5 * MINUTE, 14.4, AlertSeverity.CRITICAL),
    (6 * HOUR, 30 * MINUTE, 6, AlertSeverity.WARNING),
)
"""Long and short window, the multiple of the budget's even spending, and the urgency.

Source: Google, The Site Reliability Workbook, chapter 5, multiwindow, multi-burn-rate alerts; its two
slower rates are for a report, not for a person who is called."""

_OUTAGE: Final = 'ALERTS{alertname="KernelcastKafkaUnreachable", alertstate="firing"}'
_LENGTHS: Final = sorted({length for long, short, _, _ in _WINDOWS for length in (long, short)})
_SLOW: Final = 6 * HOUR
"""Window from which a share is recorded every five minutes."""


@dataclass(frozen=True, slots=True)
class Objective:
    """One promise about the pipeline.

    Attributes:
        name: In the names of recordings.
        alert: Name of its alerts.
        budget: Share that may miss it.
        missed: PromQL of the share that missed it, with `WINDOW` for the window.
        promise: In words.
        action: What to do first.
    """

    name: str
    alert: str
    budget: float
    missed: str
    promise: str
    action: str

    def recording(self, seconds: int) -> str:
        """The share that missed the objective within a window of production."""
        return f"pipeline:{self.name}:ratio{as_duration(seconds)}"


def _rate(series: str) -> str:
    return f"sum(rate({series}[WINDOW]))"


_FRESH: Final = f'{promql.name(bridge.FRESHNESS)}_bucket{{le=~"30|30.0"}}'
_WRITTEN: Final = f"{promql.name(bridge.FRESHNESS)}_count"
_ACKNOWLEDGED: Final = _rate(f'{promql.name(runtime.PRODUCER_MESSAGES)}{{outcome="acknowledged"}}')


def _lost() -> str:
    """Messages a second that did not reach Kafka; those that wait in a spool may still do."""
    failed = f'{promql.name(runtime.PRODUCER_MESSAGES)}{{outcome="failed"}}'
    spool, counters = promql.name(exporter.SPOOL_BYTES), (failed, promql.name(runtime.PRODUCER_DROPPED))
    own = (promql.unspooled(f"rate({one}[WINDOW])", spool, "WINDOW") for one in counters)
    parts = (*(f"sum({one})" for one in own), _rate(promql.name(exporter.SPOOL_DROPPED)))
    return " + ".join(f"({part} or 0 * {_ACKNOWLEDGED})" for part in parts)


OBJECTIVES: Final = (
    Objective(
        "late_messages",
        "KernelcastFreshnessObjectiveBurns",
        0.01,
        f"1 - {_rate(_FRESH)} / ({_rate(_WRITTEN)} > 0)",
        f"99 % of messages are ready for a scrape within {FRESH_SECONDS:g} s of their newest point",
        "Compare the delay by topic with the lag: lag points to the bridge or Kafka, delay without lag to the "
        "exporters' clocks or their spool.",
    ),
    Objective(
        "lost_messages",
        "KernelcastDeliveryObjectiveBurns",
        0.001,
        f"({_lost()}) / ({_ACKNOWLEDGED} + {_lost()} > 0)",
        "99.9 % of messages reach Kafka",
        "Look at the rows of losses: which daemon loses messages of which topic; the daemon's log says why.",
    ),
)


def recordings(profile: Profile) -> tuple[RecordingRule, ...]:
    """The share that missed each objective, over each window but the slow ones."""
    return _recordings(profile, [length for length in _LENGTHS if length < _SLOW])


def slow_recordings(profile: Profile) -> tuple[RecordingRule, ...]:
    """The same over hours."""
    return _recordings(profile, [length for length in _LENGTHS if length >= _SLOW])


def _recordings(profile: Profile, lengths: Iterable[int]) -> tuple[RecordingRule, ...]:
    return tuple(
        RecordingRule(one.recording(length), one.missed.replace("WINDOW", profile.window(length)))
        for one in OBJECTIVES
        for length in lengths
    )


def alerts(profile: Profile) -> tuple[AlertRule, ...]:
    """An alert for each objective and rate."""
    return tuple(_burns(profile, one, severity) for one in OBJECTIVES for severity in _severities())


def _severities() -> tuple[AlertSeverity, ...]:
    return tuple(dict.fromkeys(severity for _, _, _, severity in _WINDOWS))


def _burns(profile: Profile, objective: Objective, severity: AlertSeverity) -> AlertRule:
    conditions = []
    for long, short, factor, urgency in _WINDOWS:
        if urgency is severity:
            limit = f"{factor * objective.budget:.6g}"
            lasting = lately(objective.recording(long), profile) if long >= _SLOW else objective.recording(long)
            # An outage of Kafka has its own alert, and its messages are in the short window for a while afterwards.
            outage = f"max_over_time({_OUTAGE}[{profile.window(2 * short)}])"
            conditions.append(f"({lasting} > {limit} and {objective.recording(short)} > {limit} unless on () {outage})")
    return AlertRule(
        name=objective.alert,
        expr=" or ".join(conditions),
        hold_seconds=3 * MINUTE,  # longer than the alert about Kafka
        severity=severity,
        summary=f"Objective missed in {{{{ $value | humanizePercentage }}}} of cases: {objective.promise}",
        description=f"The objective is that {objective.promise}. Its error budget is spent so fast that it is used up "
        "before the month ends; the short window shows that this goes on now.",
        action=objective.action,
        dashboard=PIPELINE,
        source="Google, The Site Reliability Workbook, chapter 5",
    )
