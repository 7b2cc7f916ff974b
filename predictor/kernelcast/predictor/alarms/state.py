"""Converts the state of `Alarms` to plain data for JSON and back.

`FindingLog` saves it to the topic `kernelcast.state`, and reads it at the start. What people marked on a finding, such
as a false alarm, is not part of it: that is read again from the topic of findings.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kernelcast.predictor.alarms.candidates import FindingCandidate
from kernelcast.predictor.alarms.findings import Open
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.errors import EventError, WireError
from kernelcast.wire.events import finding_from, to_event
from kernelcast.wire.findings import Finding, Scope

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class AlarmSnapshot:
    """Everything in the state of `Alarms` that later findings depend on.

    Attributes:
        updated_ns: Time of the last evaluation of all series.
        candidates: Deviations of series that are, or may become, part of a finding.
        findings: Findings that are still open.
        summary: The finding that counts the pages held back by the budget; None without one.
        paged_ns: When each finding was paged, by its id.
    """

    updated_ns: int
    candidates: tuple[FindingCandidate, ...]
    findings: tuple[Open, ...]
    summary: Open | None
    paged_ns: Mapping[str, int]


def dump(snapshot: AlarmSnapshot) -> dict[str, Any]:
    """Return the snapshot as an object ready for JSON."""
    return {
        "version": VERSION,
        "updated_ns": snapshot.updated_ns,
        "candidates": [_from_candidate(one) for one in snapshot.candidates],
        "findings": [_from_open(one) for one in snapshot.findings],
        "summary": None if snapshot.summary is None else _from_open(snapshot.summary),
        "paged_ns": dict(snapshot.paged_ns),
    }


def load(data: Mapping[str, Any]) -> AlarmSnapshot:
    """Return the snapshot that `dump` wrote.

    Raises:
        WireError: It has another version, or is no such snapshot.
    """
    version = data.get("version")
    if version != VERSION:
        raise WireError(
            f"the alarms' state has version {version!r}; this program reads {VERSION}; findings begin again"
        )
    try:
        return AlarmSnapshot(
            updated_ns=int(data["updated_ns"]),
            candidates=tuple(map(_candidate, data["candidates"])),
            findings=tuple(map(_open, data["findings"])),
            summary=None if data["summary"] is None else _open(data["summary"]),
            paged_ns={str(name): int(time_ns) for name, time_ns in data["paged_ns"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, EventError) as error:
        raise WireError(f"the alarms' state cannot be read: {error!r}; findings begin again") from error


def _from_candidate(one: FindingCandidate) -> dict[str, Any]:
    return {
        "latest": _event(one.latest),
        "since_ns": one.since_ns,
        "seen_ns": one.seen_ns,
        "begins_ns": list(one.begins_ns),
        "is_accepted": one.is_accepted,
        "finding_id": one.finding_id,
    }


def _candidate(data: Mapping[str, Any]) -> FindingCandidate:
    if not data["begins_ns"]:
        raise ValueError("begins_ns is empty")
    return FindingCandidate(
        latest=finding_from(data["latest"]),
        since_ns=int(data["since_ns"]),
        seen_ns=int(data["seen_ns"]),
        begins_ns=tuple(map(int, data["begins_ns"])),
        is_accepted=bool(data["is_accepted"]),
        finding_id=str(data["finding_id"]),
    )


def _from_open(one: Open) -> dict[str, Any]:
    return {
        "finding_id": one.finding_id,
        "scope": one.scope,
        "unit": one.unit,
        "cause": one.cause,
        "began_ns": one.began_ns,
        "published": None if one.published is None else _event(one.published),
        "published_ns": one.published_ns,
        "was_paged": one.was_paged,
    }


def _open(data: Mapping[str, Any]) -> Open:
    published = None if data["published"] is None else finding_from(data["published"])
    return Open(
        finding_id=str(data["finding_id"]),
        scope=Scope(data["scope"]),
        unit=str(data["unit"]),
        cause=None if data["cause"] is None else Cause(data["cause"]),
        began_ns=int(data["began_ns"]),
        published=published,
        present=published,
        published_ns=int(data["published_ns"]),
        was_paged=bool(data["was_paged"]),
    )


def _event(finding: Finding) -> dict[str, Any]:
    return to_event(
        finding, source="/kernelcast/predictor", time_ns=finding.updated_ns, event_id="state"
    )  # never published, so any id will do
