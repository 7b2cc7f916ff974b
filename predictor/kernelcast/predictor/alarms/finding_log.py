"""Keeps findings from cycle to cycle, writes those that change to Kafka, and reads people's marks.

`cycle_loop` calls `FindingLog.cycle` in each cycle; `service` calls `poll` on the thread that reads Kafka. `alarms`
decides which findings begin and end.
"""

import json
import math
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kernelcast.predictor.alarms.alarms import NO_DEPLOYS, Alarms
from kernelcast.predictor.alarms.bars import LASTING_NS, precision, verdicts
from kernelcast.predictor.alarms.grouping import NO_PROGRAMS, DevicePrograms, Labels
from kernelcast.predictor.alarms.settings import AlarmSettings
from kernelcast.predictor.alarms.state import dump, load
from kernelcast.runtime.instruments import counter, gauge
from kernelcast.runtime.kafka.clients import Sender
from kernelcast.runtime.kafka.follow import TopicFollower
from kernelcast.runtime.kafka.replay import ReplayConsumer
from kernelcast.wire.catalogue import predictor as rows
from kernelcast.wire.catalogue.forecast import SUBJECT_LABELS
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.catalogue.model import Metric
from kernelcast.wire.cloudevents import encode_event
from kernelcast.wire.errors import EventError, WireError
from kernelcast.wire.events import to_event
from kernelcast.wire.findings import (
    LIMIT_QUANTILES,
    EndReason,
    Finding,
    FindingEvidence,
    FindingState,
    Mark,
    Scope,
    Severity,
    Verdict,
)
from kernelcast.wire.topics import FINDINGS

MAX_FORGOTTEN_NS: Final = 3600 * 1_000_000_000
"""Time whose marks and findings one cycle forgets at most."""
MARKS: Final = "marks"
"""Label `source` of the precision that people's marks show."""
MAX_LABEL_BYTES: Final = 16 * 1024
"""Labels of a finding whose labels are too long for an event; they come from other producers."""
HELD: Final = "held"
"""Label `urgency` of a page beyond the budget."""
POSTED: Final = "posted"
"""Label `urgency` of a finding that the predictor posts to Alertmanager itself: no rule fires on it."""
_NANOSECONDS: Final = 1e9


class FindingSeries(Collector):
    """The series of each finding that lasts. Scrapes read it on another thread than the one that sets it.

    Attributes:
        are_posted: Whether the predictor posts them to Alertmanager itself.
        findings: Those that last, replaced as a whole after each cycle.
        time_ns: Time up to which they are known, Unix nanoseconds; 0 before the first cycle.
    """

    def __init__(self, *, are_posted: bool) -> None:
        self.are_posted = are_posted
        self.findings: Sequence[Finding] = ()
        self.time_ns = 0

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """A family for each row, also while there is no finding."""
        known = (rows.FINDING_SINCE, rows.FINDING_VALUE, rows.FINDING_LIMIT, rows.FINDING_EXPECTED, rows.FINDINGS_TIME)
        families = {row: GaugeMetricFamily(row.prometheus_name, row.help, labels=row.labels) for row in known}
        for finding in self.findings:
            labels = list(_series_labels(finding, are_posted=self.are_posted))
            for row, value in _values(finding):
                families[row].add_metric(labels, value)
            for quantile, when in _expected(finding):
                families[rows.FINDING_EXPECTED].add_metric([*labels, quantile], when)
        if self.time_ns:
            families[rows.FINDINGS_TIME].add_metric([], self.time_ns / _NANOSECONDS)
        return families.values()


def _series_labels(finding: Finding, *, are_posted: bool) -> Iterator[str]:
    own = {
        "finding_id": finding.finding_id,
        "scope": finding.scope,
        "metric": finding.metric,
        "cause": finding.cause,
        "state": finding.state,
        "urgency": HELD if finding.held else POSTED if are_posted else finding.severity,
    }
    labels = dict(finding.labels) | own
    return (str(labels.get(name, "")) for name in rows.FINDING_LABELS)


def _values(finding: Finding) -> Iterator[tuple[Metric, float]]:
    since_ns = finding.passed_ns if finding.state is FindingState.PASSED else finding.began_ns
    yield rows.FINDING_SINCE, since_ns / _NANOSECONDS
    for row, value in ((rows.FINDING_VALUE, finding.value), (rows.FINDING_LIMIT, finding.limit)):
        if value is not None:
            yield row, value


def _expected(finding: Finding) -> Iterator[tuple[str, float]]:
    if finding.state is FindingState.PREDICTED and finding.seconds_to_limit is not None:
        for quantile, seconds in zip(LIMIT_QUANTILES, finding.seconds_to_limit, strict=True):
            if seconds is not None:
                yield quantile, finding.updated_ns / _NANOSECONDS + seconds


class FindingMeasures:
    """The predictor's own metrics about findings."""

    def __init__(self, registry: CollectorRegistry, *, are_posted: bool) -> None:
        self._series = FindingSeries(are_posted=are_posted)
        registry.register(self._series)
        self._held = gauge(rows.FINDINGS_HELD, registry)
        self._changes = counter(rows.FINDING_CHANGES, registry)
        self._pages = counter(rows.PAGES, registry)
        self._refused = counter(rows.CANDIDATES_REFUSED, registry)
        self._marks = gauge(rows.MARKS, registry)
        self._precision = gauge(rows.PRECISION, registry)
        self._refused_before = 0
        for state in FindingState:
            self._changes.labels(state)
        self.marked(dict.fromkeys(Verdict, 0))

    def changed(self, changes: Iterable[Finding], pages: int, alarms: Alarms, time_ns: int) -> None:
        """Show the findings after a cycle, and count its changes."""
        self._series.findings, self._series.time_ns = tuple(alarms.lasting), time_ns
        for one in changes:
            self._changes.labels(one.state).inc()
        self._pages.inc(pages)
        self._held.set(alarms.held)
        self._refused.inc(alarms.candidates.refused - self._refused_before)
        self._refused_before = alarms.candidates.refused

    def marked(self, counts: dict[Verdict, int]) -> None:
        """Set the number of marks, and the precision that they show."""
        for verdict, count in counts.items():
            self._marks.labels(verdict).set(count)
        shown = precision(counts)
        if shown is not None:
            self._precision.labels(MARKS).set(shown)
        else:
            self._precision.remove(MARKS)


class FindingLog:
    """Keeps findings, writes those that change, and reads marks. One thread may read while another runs cycles.

    Attributes:
        alarms: The findings; a snapshot saves and restores their state before the first cycle.
    """

    def __init__(
        self,
        settings: AlarmSettings,
        producer: Sender,
        reader: ReplayConsumer,
        *,
        client_id: str,
        registry: CollectorRegistry,
        are_posted: bool = False,
    ) -> None:
        """Prepare to write and to read.

        Args:
            settings: Of findings and pages.
            producer: Writes findings.
            reader: Reads the topic; this is its only user.
            client_id: Name of this predictor as a writer.
            registry: Of its own metrics.
            are_posted: Whether findings are posted to Alertmanager besides, so that no rule may fire on their series.

        Raises:
            ConfigurationError: The file with the racks cannot be used.
        """
        self.alarms = Alarms(settings)
        self._producer = producer
        self._source = f"/kernelcast/predictor/{client_id}"
        self._measures = FindingMeasures(registry, are_posted=are_posted)
        self._follower = TopicFollower(reader, (FINDINGS.name,), self._take)
        self._lock = threading.Lock()
        self._forgotten_ns: int | None = None

    @property
    def accepted(self) -> dict[str, int]:
        """Programs of which a person accepted that a deploy made them slower, and when, Unix nanoseconds."""
        found: dict[str, int] = {}
        with self._lock:
            for mark in self.alarms.known.marks.values():
                finding = self.alarms.known.findings.get(mark.finding_id)
                if mark.verdict is Verdict.ACCEPTED and finding is not None and finding.cause is Cause.DEPLOY:
                    program = dict(finding.labels).get("program", "")
                    found[program] = max(mark.time_ns, found.get(program, 0))
        return found

    def save(self) -> bytes:
        """The findings that last, and everything that decides on later ones, for `restore`."""
        with self._lock:
            return zlib.compress(json.dumps(dump(self.alarms.snapshot())).encode())

    def restore(self, saved: bytes) -> None:
        """Go on from a saved state; call it before the first cycle.

        Raises:
            WireError: It cannot be read; findings begin again.
        """
        try:
            snapshot = load(json.loads(zlib.decompress(saved)))
        except (zlib.error, ValueError, AttributeError) as error:
            raise WireError(f"the findings' state cannot be read: {error!r}; findings begin again") from error
        with self._lock:
            self.alarms.restore(snapshot)

    def cycle(
        self,
        candidates: Iterable[Finding],
        *,
        watched: int,
        time_ns: int,
        deploys_over: Mapping[str, EndReason] = NO_DEPLOYS,
        programs: DevicePrograms = NO_PROGRAMS,
    ) -> list[Finding]:
        """Update the findings by a cycle's candidates, and write those that begin, change their state or end.

        The arguments are those of `Alarms.step`.

        Returns:
            The findings that were written.
        """
        with self._lock:
            self._forget(time_ns)
            paged = set(self.alarms.budget.paged_ns)
            changes = self.alarms.step(map(_finite, candidates), watched, time_ns, deploys_over, programs)
            pages = len(set(self.alarms.budget.paged_ns) - paged)
            self._measures.changed(changes, pages, self.alarms, time_ns)
            self._measures.marked(verdicts(self.alarms.known, time_ns))
        for one in changes:
            self._producer.send(FINDINGS.name, key=one.finding_id.encode(), value=self._encode(one, time_ns))
        return changes

    def _forget(self, time_ns: int) -> None:
        if not time_ns:
            return  # no series has reported yet
        before_ns = time_ns - LASTING_NS
        if self._forgotten_ns is not None:
            # A clock that is ahead for some cycles must not cost all marks.
            before_ns = min(before_ns, self._forgotten_ns + MAX_FORGOTTEN_NS)
        self._forgotten_ns = before_ns
        self.alarms.known.forget(before_ns)

    def poll(self, timeout_seconds: float) -> int:
        """Read one batch of findings and marks; returns the number of messages.

        Raises:
            BrokerError: Kafka does not answer.
        """
        return self._follower.poll(timeout_seconds)

    def known(self) -> tuple[dict[str, Finding], dict[str, Mark]]:
        """Findings and marks by the finding's id, with the newest values of those that last; from any thread."""
        with self._lock:
            newest = {finding.finding_id: finding for finding in self.alarms.lasting}
            return self.alarms.known.findings | newest, dict(self.alarms.known.marks)

    @property
    def caught_up(self) -> bool:
        """Whether every message that was on Kafka at the start has been read."""
        return self._follower.caught_up

    def close(self, timeout_seconds: float) -> None:
        """Stop reading; waits for the client at most this long."""
        self._follower.close(timeout_seconds)

    def _take(self, message: Any) -> None:
        if message.value() is not None:
            self.add(message.value())

    def add(self, event: bytes) -> None:
        """Take a finding or a mark, as the topic has it; from any thread."""
        with self._lock:
            added = self.alarms.known.add(event)
            if added is None:
                return
            before, finding = added
            if _was_paged(finding) and (before is None or not _was_paged(before)):
                # Another predictor of the fleet may have sent it: the budget is that of the fleet.
                paged_ns = finding.began_ns if before is None else finding.updated_ns
                self.alarms.budget.spend(finding.finding_id, paged_ns)

    def _encode(self, finding: Finding, time_ns: int) -> bytes:
        try:
            return self._event(finding, time_ns)
        except EventError:
            # Too long: the finding itself matters more than its facts, and these more than foreign labels.
            without_facts = replace(finding, evidence=())
        try:
            return self._event(without_facts, time_ns)
        except EventError:
            return self._event(replace(without_facts, labels=_shortened(finding.labels)), time_ns)

    def _event(self, finding: Finding, time_ns: int) -> bytes:
        return encode_event(to_event(finding, source=self._source, time_ns=time_ns))


def _shortened(labels: Labels) -> Labels:
    """The labels that fit into an event: those that name the series first, then the shortest."""
    left, kept = MAX_LABEL_BYTES, []
    for pair in sorted(labels, key=lambda pair: (pair[0] not in SUBJECT_LABELS, len(pair[0]) + len(pair[1]), pair)):
        size = len(json.dumps(pair))
        if size <= left:
            left -= size
            kept.append(pair)
    return tuple(sorted(kept))


def _was_paged(finding: Finding) -> bool:
    return finding.severity is Severity.PAGE and not finding.held and finding.scope is not Scope.FLEET


def _finite(finding: Finding) -> Finding:
    """The finding with None in place of numbers that JSON cannot express."""
    times = finding.seconds_to_limit
    return replace(
        finding,
        value=_number(finding.value),
        limit=_number(finding.limit),
        probability=_number(finding.probability),
        seconds_to_limit=None if times is None else (_number(times[0]), _number(times[1]), _number(times[2])),
        evidence=tuple(map(_finite_fact, finding.evidence)),
    )


def _finite_fact(fact: FindingEvidence) -> FindingEvidence:
    return replace(fact, value=_number(fact.value), reference=_number(fact.reference))


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
