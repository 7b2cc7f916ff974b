"""Findings of the predictor about series or groups of them, and the marks with which people answer them: their data.

Both travel on the topic `kernelcast.findings` (`wire.events` converts them). The predictor writes a finding when it
begins, whenever its state changes, and when it is over. `kernelcast findings mark` writes a mark.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kernelcast.wire.catalogue.meanings import Cause

LIMIT_QUANTILES: Final = ("0.1", "0.5", "0.9")
"""Shares of the probability whose times `Finding.seconds_to_limit` has."""
WIDE_TIMES: Final = 4.0
"""A median of this many times the first of these times, or more, names no moment: a message says by when, not when.

For a limit that the next high load passes, at any time of a day, the ratio is 5."""


class FindingState(StrEnum):
    """States of a finding.

    A finding about a limit is predicted, and passed once the value has crossed the limit. A fault that exists already,
    such as an XID, is observed. Each ends as over.
    """

    PREDICTED = "predicted"
    PASSED = "passed"
    OBSERVED = "observed"
    OVER = "over"


class Severity(StrEnum):
    """Urgency: a page wakes somebody, a ticket waits for working hours."""

    PAGE = "page"
    TICKET = "ticket"


class Scope(StrEnum):
    """Extent of a finding."""

    SERIES = "series"
    GPU = "gpu"
    NODE = "node"
    PROGRAM = "program"
    RACK = "rack"
    FLEET = "fleet"


class Verdict(StrEnum):
    """Answer of a person to a finding."""

    FALSE_ALARM = "false-alarm"
    REPAIRED = "repaired"
    ACCEPTED = "accepted"


class EndReason(StrEnum):
    """Reason for the end of a finding.

    Cleared: it no longer holds. Accepted: a person marked it so. Undone: the deploy behind it was taken back, or its
    kernels are as fast as before. Program ended: its program runs no more.
    """

    CLEARED = "cleared"
    ACCEPTED = "accepted"
    UNDONE = "undone"
    PROGRAM_ENDED = "program_ended"


@dataclass(frozen=True, slots=True)
class FindingEvidence:
    """One fact behind a finding, so that a person can look it up.

    Attributes:
        metric: Prometheus name of the series.
        labels: Labels that select it, sorted pairs.
        value: Its value, in the metric's unit; None where its absence is the evidence.
        reference: The value that it is compared with; None for none.
        against: Kind of the reference: `limit`, `baseline`, `peers`, `before` or empty.
        begin_ns: Begin of the time that shows it, Unix nanoseconds.
        end_ns: End of that time.
        peers: Nodes whose values make the reference; 0 where it comes from no other node.
        code_version: Version of the program that the value and the reference belong to; empty where it is not known.
        changes: Versions that differ between the reference and the value, such as
            `image a:1 -> a:2, driver 550.54.15 -> 560.28.03`; empty where none is known.
    """

    metric: str
    labels: tuple[tuple[str, str], ...] = ()
    value: float | None = None
    reference: float | None = None
    against: str = ""
    begin_ns: int = 0
    end_ns: int = 0
    peers: int = 0
    code_version: str = ""
    changes: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, will be, or has changed.

    Attributes:
        finding_id: Unique, and the same for as long as the finding lasts.
        cause: Its cause.
        state: Its present state.
        severity: Its urgency.
        scope: Its extent.
        labels: Labels of the series, or those that its series share, sorted pairs.
        metric: Prometheus name of the series that shows it best.
        value: Its newest value, in the metric's unit.
        limit: The limit that it reaches, in the same unit; None where there is none.
        probability: Of reaching the limit within the longest horizon; None where nothing is predicted.
        seconds_to_limit: Times by which 10, 50 and 90 per cent of the probability have reached it; None for never.
        began_ns: Begin, Unix nanoseconds.
        passed_ns: When the limit was passed, Unix nanoseconds; 0 before.
        updated_ns: Time of this state.
        ended_ns: End; 0 while it lasts.
        series: Number of series that it explains.
        held: Whether it does not page, because the fleet has had as many pages as the settings allow.
        evidence: The facts behind it.
        end_reason: Reason for its end; None while it lasts.
    """

    finding_id: str
    cause: Cause
    state: FindingState
    severity: Severity
    scope: Scope
    labels: tuple[tuple[str, str], ...]
    metric: str
    value: float | None = None
    limit: float | None = None
    probability: float | None = None
    seconds_to_limit: tuple[float | None, float | None, float | None] | None = None
    began_ns: int = 0
    passed_ns: int = 0
    updated_ns: int = 0
    ended_ns: int = 0
    series: int = 1
    held: bool = False
    evidence: tuple[FindingEvidence, ...] = ()
    end_reason: EndReason | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Answer of a person to one finding.

    Attributes:
        finding_id: The finding.
        verdict: The answer.
        by: The person.
        note: Remark, for people.
        time_ns: Its time, Unix nanoseconds.
    """

    finding_id: str
    verdict: Verdict
    by: str = ""
    note: str = ""
    time_ns: int = 0


def mark_key(finding_id: str) -> str:
    """Key of a mark's message; that of a finding's message is the finding's id, so neither replaces the other."""
    return f"mark|{finding_id}"
