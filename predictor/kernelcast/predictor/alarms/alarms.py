"""Keeps the findings of a fleet: candidates of single series in, few findings with stable ids out.

`FindingLog` calls `Alarms.step` once a cycle, writes the findings that it returns to Kafka, and saves its state.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from kernelcast.predictor.alarms.bars import bars
from kernelcast.predictor.alarms.budget import DAY_NS, PageBudget
from kernelcast.predictor.alarms.candidates import FindingCandidate, FindingCandidates
from kernelcast.predictor.alarms.findings import (
    Open,
    build,
    is_news,
    new_id,
    not_before,
    over,
    subject_of,
)
from kernelcast.predictor.alarms.grouping import NO_PROGRAMS, CandidateGroup, DevicePrograms, Places, groups, joining
from kernelcast.predictor.alarms.racks import RackOf, rack_of
from kernelcast.predictor.alarms.settings import AlarmSettings
from kernelcast.predictor.alarms.state import AlarmSnapshot
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.catalogue.predictor import FINDINGS_HELD
from kernelcast.wire.findings import EndReason, Finding, FindingState, Scope, Severity, Verdict
from kernelcast.wire.known_findings import KnownFindings

REPEAT_NS: Final = DAY_NS
"""A finding that lasts is reported again after this time, so that the topic keeps it."""
NO_DEPLOYS: Final[Mapping[str, EndReason]] = MappingProxyType({})
"""No program whose slower deploy is over."""
_URGENCY: Final = {FindingState.PASSED: 0, FindingState.OBSERVED: 1, FindingState.PREDICTED: 2, FindingState.OVER: 3}
"""Order in which findings get the pages that the budget has left; the smallest first."""

_Place = tuple[Scope, str, Cause | None]
"""Scope, unit and cause of a finding."""


class Alarms:
    """Decides in each cycle which findings begin, change and end. Works on event time; its owner holds a lock.

    Attributes:
        candidates: Candidates of single series, accepted or not.
        budget: Pages of the last 24 hours, also those of other predictors.
        known: Findings and people's marks; the owner adds those that others wrote, and forgets old ones.
    """

    def __init__(self, settings: AlarmSettings, *, racks: RackOf | None = None) -> None:
        """Start without findings.

        Args:
            settings: The settings.
            racks: From a host to its rack; None reads it from the settings.

        Raises:
            ConfigurationError: The file with the racks cannot be used.
        """
        self._settings = settings
        self._rack_of = racks or rack_of(settings)
        self._open: dict[str, Open] = {}
        self._summary: Open | None = None
        self.candidates = FindingCandidates(settings)
        self.budget = PageBudget(settings.pages_per_day)
        self.known = KnownFindings()

    @property
    def lasting(self) -> list[Finding]:
        """All findings that last, with their newest values; not the summary of those whose page is held."""
        return [one.present for one in self._open.values() if one.present is not None]

    @property
    def held(self) -> int:
        """Number of findings whose page is held."""
        return sum(one.published is not None and one.published.held for one in self._open.values())

    def step(
        self,
        found: Iterable[Finding],
        watched: int,
        time_ns: int,
        deploys_over: Mapping[str, EndReason] = NO_DEPLOYS,
        programs: DevicePrograms = NO_PROGRAMS,
    ) -> list[Finding]:
        """Update candidates and findings by the results of a cycle.

        Args:
            found: Candidates that hold now, at most one of each series; their ids are not used.
            watched: Number of series that are watched, with and without a candidate.
            time_ns: Time of the cycle, Unix nanoseconds, later than that of the last one unless clocks were set back;
                0 before a series has reported.
            deploys_over: Programs of which no kernel is slower since a deploy any more, with the reason; their findings
                end at once.
            programs: Program that runs alone on each GPU, so that a leak of a job is one finding, not one of each node.

        Returns:
            Findings that begin, change their state or end.
        """
        if not time_ns:
            return []
        if time_ns < self.candidates.updated_ns:
            self._set_back(time_ns)
        places = Places(self._rack_of, programs)
        self.candidates.close_deploys(deploys_over)
        self.candidates.update(found, time_ns)
        self._accept(watched, time_ns, places)
        members = self._regroup(time_ns, places)
        ended = [self._end(one, time_ns, deploys_over) for one in list(self._open.values()) if not one.members]
        changed = self._describe(members, time_ns)
        changed += self._report_held(time_ns)
        changes = [one for one in ended if one is not None] + changed
        self.known.findings |= {one.finding_id: one for one in changes}
        return changes

    def snapshot(self) -> AlarmSnapshot:
        """Return the state after the last step."""
        candidates = tuple(self.candidates.by_series.values())
        return AlarmSnapshot(
            self.candidates.updated_ns,
            candidates,
            tuple(self._open.values()),
            self._summary,
            dict(self.budget.paged_ns),
        )

    def restore(self, snapshot: AlarmSnapshot) -> None:
        """Go on from an earlier state."""
        self.candidates.updated_ns = snapshot.updated_ns
        self.candidates.by_series = {one.key: one for one in snapshot.candidates}
        self._open = {one.finding_id: one for one in snapshot.findings}
        for one in self._open.values():
            one.members = {each.key for each in snapshot.candidates if each.finding_id == one.finding_id}
        self._summary = snapshot.summary
        self.budget.paged_ns = dict(snapshot.paged_ns)

    def _set_back(self, time_ns: int) -> None:
        self.candidates.set_back(time_ns)
        for one in [*self._open.values(), *([self._summary] if self._summary is not None else [])]:
            one.began_ns, one.published_ns = min(one.began_ns, time_ns), min(one.published_ns, time_ns)
        self.budget.set_back(time_ns)

    def _accept(self, watched: int, time_ns: int, places: Places) -> None:
        """Accept candidates that are strong enough, and those that they explain."""
        candidates = self.candidates
        candidates.accept(watched, bars(self.known, time_ns), places.unit_of)
        # Within a unit that has a fault, all that have a prediction are watched: m = k.
        least = -math.log(self._settings.false_discovery_ratio)
        for one in joining(candidates.by_series.values(), places, least):
            one.is_accepted = True

    def _regroup(self, time_ns: int, places: Places) -> dict[str, Sequence[FindingCandidate]]:
        """Assign accepted candidates to findings; returns each finding's members."""
        by_place: dict[_Place, list[Open]] = defaultdict(list)
        for one in self._open.values():
            by_place[one.scope, one.unit, one.cause].append(one)
        accepted = [one for one in self.candidates.by_series.values() if one.is_accepted]
        made = groups(accepted, lambda *which: which in by_place, places)
        for one in self._open.values():
            one.members = set()
        result: dict[str, Sequence[FindingCandidate]] = {}
        for group in made:
            opened = self._opened_for(group, by_place, result, time_ns)
            opened.scope, opened.unit, opened.cause = group.scope, group.unit, group.cause
            opened.members = {one.key for one in group.members}
            for member in group.members:
                member.finding_id = opened.finding_id
            result[opened.finding_id] = group.members
        return result

    def _opened_for(
        self,
        group: CandidateGroup,
        by_place: Mapping[_Place, Sequence[Open]],
        used: Mapping[str, Sequence[FindingCandidate]],
        time_ns: int,
    ) -> Open:
        """The oldest finding that a member belonged to, or with the same scope, unit and cause; else a new one.

        One that was paged precedes: a finding that is found to be wider is not paged again.
        """
        ids = {one.finding_id for one in group.members if one.finding_id}
        known = [self._open[each] for each in ids if each in self._open]
        known += by_place.get((group.scope, group.unit, group.cause), ())
        same = [one for one in known if one.finding_id not in used]
        if same:
            return min(same, key=lambda one: (not one.was_paged, one.began_ns, one.finding_id))
        opened = Open(new_id(group, time_ns), group.scope, group.unit, group.cause, time_ns)
        self._open[opened.finding_id] = opened
        return opened

    def _end(self, opened: Open, time_ns: int, deploys_over: Mapping[str, EndReason]) -> Finding | None:
        del self._open[opened.finding_id]
        deployed = opened.unit if opened.cause is Cause.DEPLOY else ""
        reason = deploys_over.get(deployed, EndReason.CLEARED)
        return over(opened.published, time_ns, reason) if opened.published is not None else None

    def _describe(self, members: dict[str, Sequence[FindingCandidate]], time_ns: int) -> list[Finding]:
        """Describe all findings, the most urgent first, so that they get the pages that are left."""
        built = [build(self._open[key], found, time_ns, held=False) for key, found in members.items()]
        built.sort(key=lambda one: (_URGENCY[one.state], -one.series, one.began_ns, one.finding_id))
        changed = []
        for one in built:
            finding = self._within_budget(one, time_ns)
            opened = self._open[finding.finding_id]
            repeated = time_ns - opened.published_ns >= REPEAT_NS
            if opened.published is None or is_news(opened.published, finding) or repeated:
                opened.published, opened.published_ns = finding, time_ns
                changed.append(finding)
            if finding.cause is Cause.DEPLOY:  # a later deploy is not the one that made it slower
                finding = replace(finding, evidence=opened.published.evidence)
            opened.present = finding
        return changed

    def _within_budget(self, finding: Finding, time_ns: int) -> Finding:
        """Mark a page as held if the budget is spent; one that was sent before, or whose limit is passed, is sent."""
        if finding.severity is not Severity.PAGE:
            return finding
        opened = self._open[finding.finding_id]
        if not opened.was_paged and self._returns(finding, time_ns):
            return replace(finding, severity=Severity.TICKET)
        if opened.was_paged or finding.state is FindingState.PASSED or self.budget.left(time_ns):
            if not opened.was_paged:
                self.budget.spend(finding.finding_id, time_ns)
            opened.was_paged = True
            return finding
        return replace(finding, held=True)

    def _returns(self, finding: Finding, time_ns: int) -> bool:
        """Whether a finding about a limit ended within the last day and got as far as this one; not if repaired."""
        if finding.state is FindingState.OBSERVED:
            return False
        ended = (
            one
            for one in self.known.findings.values()
            if one.state is FindingState.OVER and not one.held and 0 <= time_ns - one.ended_ns < DAY_NS
        )
        marks, subject, passed = self.known.marks, subject_of(finding), finding.state is FindingState.PASSED
        return any(
            (one.passed_ns > 0 or not passed)
            and subject_of(one) == subject
            and (one.finding_id not in marks or marks[one.finding_id].verdict is not Verdict.REPAIRED)
            for one in ended
        )

    def _report_held(self, time_ns: int) -> list[Finding]:
        """Report one finding of the fleet while pages are held, at most one a day; its value is their number."""
        held = self.held
        if self._summary is None and held:
            self._summary = Open(f"held-{time_ns}", Scope.FLEET, "", None, time_ns)
        if self._summary is None:
            return []
        last = self._summary.published
        if not held and time_ns - self._summary.began_ns >= DAY_NS:
            self._summary = None
            return [over(last, time_ns)] if last is not None else []
        if last is not None and last.value == held:
            return []
        self._summary.published = Finding(
            finding_id=self._summary.finding_id,
            cause=Cause.UNKNOWN,
            state=FindingState.OBSERVED,
            severity=Severity.PAGE,
            scope=Scope.FLEET,
            labels=(),
            metric=FINDINGS_HELD.prometheus_name,
            value=float(held),
            limit=float(self._settings.pages_per_day),
            began_ns=self._summary.began_ns,
            updated_ns=not_before(last, time_ns),
            series=sum(one.published.series for one in self._open.values() if one.published and one.published.held),
        )
        return [self._summary.published]
