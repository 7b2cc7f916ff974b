"""Scores of the findings of a fleet: faults paged on the right unit with the right cause, and pages a day."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from benchmarks.predictor.fleet.engine import Change
from benchmarks.predictor.fleet.faults import AGEING, RACK_HEAT, Injected
from benchmarks.predictor.fleet.layout import DAY_STEPS, HOUR_STEPS, STEP_SECONDS, FleetSize
from benchmarks.predictor.fleet.recording import Recording

from kernelcast.exporter.simulate import faults
from kernelcast.wire.findings import Finding, FindingState, Scope, Severity

NONE: Final = "none"
AFTERWARDS_STEPS: Final = HOUR_STEPS
"""A page may come this long after a fault has ended, and its cause may be corrected within this time."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page: the finding as it was paged, and as it changed within the hour."""

    step: int
    said: tuple[Finding, ...]

    @property
    def first(self) -> Finding:
        """The finding as it was paged."""
        return self.said[0]


def pages(changes: Iterable[Change]) -> list[Page]:
    """Findings that became a page, in order of time."""
    said: dict[str, list[Finding]] = {}
    begun: dict[str, int] = {}
    for change in changes:
        one = change.finding
        is_page = one.severity is Severity.PAGE and not one.held and one.state is not FindingState.OVER
        if one.finding_id in begun:
            if is_page and change.step - begun[one.finding_id] <= AFTERWARDS_STEPS:
                said[one.finding_id].append(one)
        elif is_page:
            begun[one.finding_id] = change.step
            said[one.finding_id] = [one]
    return [Page(step, tuple(said[name])) for name, step in begun.items()]


LEADING: Final = frozenset({faults.THERMAL_DRIFT, faults.MEMORY_LEAK, AGEING, RACK_HEAT})
"""Kinds that reach a limit some time after their onset, so that a page can come before."""
LONG_STEPS: Final = 3 * HOUR_STEPS
"""Time from onset to breach from which on the lead of a page counts."""


def paging(recording: Recording, changes: Iterable[Change], passed: Mapping[int, int]) -> dict[str, Any]:
    """Pages where none is held: their number, precision, recall, and how long before the limit was passed they came.

    A fault whose page has not come when its limit is passed is missed, unless it comes at once.
    """
    size = recording.size
    sent = [page for page in pages(changes) if page.first.scope is not Scope.FLEET]
    true: set[int] = set()
    paged, leads = 0, []
    for number, fault in enumerate(recording.faults):
        mine = [page for page in sent if _meets(fault, page, size)]
        true |= {id(page) for page in mine}
        breach = passed.get(number)
        leading = fault.kind in LEADING and breach is not None and breach - fault.onset >= LONG_STEPS
        if breach is not None and leading:
            lead = breach - mine[0].step if mine else 0
            leads.append(round(max(lead, 0) * STEP_SECONDS / 60))
            paged += lead > 0
        else:
            paged += bool(mine)
    return {
        "pages_per_day": round(len(sent) / (size.days - 1), 2),
        "precision": round(len(true) / len(sent), 3) if sent else None,
        "recall": paged,
        "lead_minutes": leads,
        "false_causes": dict(Counter(page.first.cause.value for page in sent if id(page) not in true)),
    }


def score(recording: Recording, changes: list[Change]) -> dict[str, Any]:
    """Score one fleet; the figures are ready for JSON."""
    size = recording.size
    every = pages(changes)
    sent = [page for page in every if page.first.scope is not Scope.FLEET]
    results = [_result(fault, sent, size) for fault in recording.faults]
    true = {id(page) for fault in recording.faults for page in sent if _meets(fault, page, size)}
    days = Counter(page.step // DAY_STEPS for page in every)
    evaluated = range(1, size.days)
    ended = {change.finding.finding_id for change in changes if change.finding.severity is Severity.TICKET}
    held = {change.finding.finding_id for change in changes if change.finding.held}
    return {
        "faults": len(results),
        "right": sum(one["right"] for one in results),
        "paged": sum(one["found"] != NONE for one in results),
        "pages": len(every),
        "pages_per_day": round(len(every) / len(evaluated), 2),
        "pages_of_the_worst_day": max(days[day] for day in evaluated),
        "false_pages": [_shown(page) for page in sent if id(page) not in true],
        "tickets": len(ended - {page.first.finding_id for page in every}),
        "held": len(held),
        "results": results,
    }


def _result(fault: Injected, sent: list[Page], size: FleetSize) -> dict[str, Any]:
    mine = [page for page in sent if _meets(fault, page, size)]
    exact = [page for page in mine if _is_unit(fault, page)]
    right = [page for page in exact if any(one.cause in fault.causes for one in page.said)]
    found = next(iter(right or exact or mine), None)
    return {
        "kind": fault.kind,
        "expected": min(fault.causes).value,
        "found": NONE if found is None else found.first.cause.value,
        "scope": "" if found is None else found.first.scope.value,
        "right": bool(right),
        "pages": len(mine),
        "delay_hours": None if found is None else round((found.step - fault.onset) / HOUR_STEPS, 2),
    }


def _meets(fault: Injected, page: Page, size: FleetSize) -> bool:
    """Whether a page is about a GPU of the fault, while it acts."""
    if not fault.onset <= page.step <= fault.end + AFTERWARDS_STEPS:
        return False
    return any(bool(np.isin(_gpus(one, size), fault.gpus).any()) for one in page.said)


def _is_unit(fault: Injected, page: Page) -> bool:
    return any(one.scope is fault.scope for one in page.said)


def _gpus(finding: Finding, size: FleetSize) -> list[int]:
    """GPUs that a finding names: its own, or those of its unit."""
    labels = dict(finding.labels)
    if finding.scope is Scope.RACK:
        return np.flatnonzero(size.rack == int(labels["rack"][1:])).tolist()
    if finding.scope is Scope.NODE:
        hosts = [size.host(int(node)) for node in size.node]
        return [gpu for gpu, host in enumerate(hosts) if host == labels["Hostname"]]
    if "UUID" in labels:
        return [int(labels["UUID"].removeprefix("GPU-"))]
    return [
        int(dict(one.labels)["UUID"].removeprefix("GPU-")) for one in finding.evidence if "UUID" in dict(one.labels)
    ]


def _shown(page: Page) -> str:
    one = page.first
    unit = dict(one.labels).get("UUID") or dict(one.labels).get("Hostname") or dict(one.labels).get("rack") or ""
    return f"day {page.step / DAY_STEPS:.1f} {one.scope} {unit} {one.cause} {one.state} {one.metric}"
