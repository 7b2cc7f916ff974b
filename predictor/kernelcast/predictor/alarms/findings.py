"""Makes the finding of a group of candidates, and the end of a finding; `Alarms` calls it in each cycle."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Final

from kernelcast.predictor.alarms.candidates import CandidateKey, FindingCandidate
from kernelcast.predictor.alarms.grouping import CandidateGroup, Labels, primary
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import EndReason, Finding, FindingEvidence, FindingState, Scope, Severity

MAX_SERIES_NAMED: Final = 32
"""Series of a group that a finding names as evidence; their number is in `Finding.series`."""
MAX_FACTS: Final = 8
"""Facts of the leading series that a finding carries besides the series it explains; an event has a size limit."""
_ID_BYTES: Final = 6
_UNIT_LABEL: Final = {Scope.RACK: "rack", Scope.NODE: "Hostname", Scope.PROGRAM: "program"}
_SUBJECT_LABELS: Final = {scope: {name} for scope, name in _UNIT_LABEL.items()} | {
    Scope.GPU: {"Hostname", "UUID", "gpu", "GPU_I_ID"}
}


@dataclass(slots=True)
class Open:
    """A finding that lasts, with the candidates that it consists of in the present cycle.

    Attributes:
        finding_id: Its id.
        scope, unit, cause: As `CandidateGroup`.
        began_ns: Its begin.
        members: Series that belong to it.
        published: As it was last reported; None before.
        present: As it is in the present cycle, a deploy with the evidence of the last report; before the first cycle
            after a start, as last reported.
        published_ns: When that was.
        was_paged: Whether its page was sent; it needs no second one, also after it was a ticket for a while.
    """

    finding_id: str
    scope: Scope
    unit: str
    cause: Cause | None
    began_ns: int
    members: set[CandidateKey] = field(default_factory=set)
    published: Finding | None = None
    present: Finding | None = None
    published_ns: int = 0
    was_paged: bool = False


def new_id(group: CandidateGroup, began_ns: int) -> str:
    """An id that is the same whenever the same things are evaluated again."""
    text = f"{group.scope}|{group.unit}|{group.cause or ''}|{began_ns}|{sorted(one.key for one in group.members)}"
    return hashlib.blake2b(text.encode(), digest_size=_ID_BYTES).hexdigest()


def build(opened: Open, members: Sequence[FindingCandidate], time_ns: int, *, held: bool) -> Finding:
    """Describe a group by its leading candidate: state, value, limit and times are those of one series."""
    lead = primary(members)
    paged = any(one.latest.severity is Severity.PAGE for one in members)
    chances = [one.latest.probability for one in members if one.latest.probability is not None]
    return Finding(
        finding_id=opened.finding_id,
        cause=lead.cause,
        state=lead.state,
        severity=Severity.PAGE if paged else Severity.TICKET,
        scope=opened.scope,
        labels=_labels(opened, members),
        metric=lead.metric,
        value=lead.value,
        limit=lead.limit,
        probability=max(chances, default=None),
        seconds_to_limit=lead.seconds_to_limit,
        began_ns=opened.began_ns,
        passed_ns=lead.passed_ns if lead.state is FindingState.PASSED else 0,
        updated_ns=not_before(opened.published, time_ns),
        series=len(members),
        held=held,
        evidence=_evidence(lead, members),
    )


def over(last: Finding, time_ns: int, reason: EndReason = EndReason.CLEARED) -> Finding:
    """The end of a finding."""
    return Finding(
        finding_id=last.finding_id,
        cause=last.cause,
        state=FindingState.OVER,
        severity=last.severity,
        scope=last.scope,
        labels=last.labels,
        metric=last.metric,
        value=last.value,
        limit=last.limit,
        began_ns=min(last.began_ns, time_ns),
        passed_ns=min(last.passed_ns, time_ns),
        updated_ns=not_before(last, time_ns),
        ended_ns=time_ns,
        series=last.series,
        held=last.held,
        evidence=last.evidence,
        end_reason=reason,
    )


def subject_of(finding: Finding) -> tuple[Scope, Cause, str, Labels]:
    """What a finding is about: its scope and cause, and the rack, node, program, GPU or series."""
    names = _SUBJECT_LABELS.get(finding.scope)
    if names is None:
        return finding.scope, finding.cause, finding.metric, finding.labels
    return finding.scope, finding.cause, "", tuple(pair for pair in finding.labels if pair[0] in names)


def not_before(last: Finding | None, time_ns: int) -> int:
    """The time of an update: readers ignore an earlier one than the last, also after clocks were set back."""
    return time_ns if last is None else max(time_ns, last.updated_ns)


def is_news(before: Finding | None, now: Finding) -> bool:
    """Whether a finding is reported again: not for its value and probability, which change in each cycle."""
    if before is None:
        return True
    changing = ("cause", "state", "severity", "scope", "labels", "held")
    return any(getattr(before, name) != getattr(now, name) for name in changing)


def _labels(opened: Open, members: Sequence[FindingCandidate]) -> Labels:
    """Labels that all members share, and the unit of the scope."""
    shared = reduce(set.intersection, (set(one.latest.labels) for one in members))
    name = _UNIT_LABEL.get(opened.scope)
    if name is not None:
        shared = {pair for pair in shared if pair[0] != name} | {(name, opened.unit)}
    return tuple(sorted(shared))


def _evidence(lead: Finding, members: Sequence[FindingCandidate]) -> tuple[FindingEvidence, ...]:
    """The facts of the leading series, then one of each other series."""
    facts = list(lead.evidence[:MAX_FACTS])
    named = {(one.metric, one.labels) for one in facts}
    leading_first = sorted(members, key=lambda one: (one.latest is not lead, one.since_ns, one.key))
    others = [_fact(one) for one in leading_first[:MAX_SERIES_NAMED] if one.series not in named]
    return (*facts, *others)


def _fact(one: FindingCandidate) -> FindingEvidence:
    found = one.latest
    against = "" if found.limit is None else "limit"
    return FindingEvidence(found.metric, found.labels, found.value, found.limit, against, one.since_ns, one.seen_ns)
