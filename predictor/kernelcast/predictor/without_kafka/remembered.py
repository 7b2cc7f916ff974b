"""Keeps findings over a restart without Kafka: serves what they rest on as gauges, and reads it back from Prometheus.

`candidate_since` has each series that is part of a finding or waits to be, `finding_opened` each finding. At a start
both are read as they were when a predictor was last scraped, within `REMEMBERED_SECONDS`: findings keep their id and
begin, alerts their hysteresis, candidates their damping and waiting time. Two replicas read what the other one serves.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, Protocol

import numpy as np

from kernelcast.columnar import Attributes
from kernelcast.predictor.alarms.alarms import Alarms
from kernelcast.predictor.alarms.candidates import FindingCandidate
from kernelcast.predictor.alarms.findings import Open
from kernelcast.predictor.alarms.state import AlarmSnapshot
from kernelcast.predictor.engine import Engine
from kernelcast.predictor.explain import parse
from kernelcast.predictor.prometheus import RangeSeries
from kernelcast.predictor.without_kafka.admission import Admission
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.catalogue import Metric
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.catalogue.predictor import CANDIDATE_SINCE, FINDING_MARK, FINDING_OPENED, READ_TIME
from kernelcast.wire.errors import ConfigurationError, PrometheusError
from kernelcast.wire.findings import Finding, FindingEvidence, FindingState, Mark, Scope, Severity, Verdict

REMEMBERED_SECONDS: Final = 7200
"""Time for which a predictor may have been away; afterwards findings begin again."""
_NANOSECONDS: Final = 1e9

_log = get_logger(__name__)


class InstantReader(Protocol):
    """Evaluates expressions at one moment."""

    def query(self, query: str, *, at_seconds: float) -> list[RangeSeries]:
        """The series at that moment."""
        ...


def gauges(alarms: Alarms) -> dict[Metric, list[tuple[Attributes, float]]]:
    """The series that a later start reads."""
    state = alarms.snapshot()
    candidates = [(_candidate_labels(one), one.since_ns / _NANOSECONDS) for one in state.candidates]
    opened = [(_opened_labels(one), one.began_ns / _NANOSECONDS) for one in state.findings]
    findings, marks = alarms.known.findings, list(alarms.known.marks.values())
    marked: list[tuple[Attributes, float]] = [
        (_mark_labels(one, series), one.time_ns / _NANOSECONDS)
        for one in marks
        for series in _series_of(findings.get(one.finding_id))
    ]
    return {CANDIDATE_SINCE: candidates, FINDING_OPENED: opened, FINDING_MARK: marked}


class Remembered:
    """Reads findings back. One thread uses it."""

    def __init__(
        self,
        client: InstantReader,
        engine: Engine,
        admission: Admission,
        alarms: Alarms,
        *,
        clock_seconds: Callable[[], float],
    ) -> None:
        self._client, self._engine, self._admission, self._alarms = client, engine, admission, alarms
        self._clock_seconds = clock_seconds
        self._marks: list[RangeSeries] = []

    def restore(self) -> bool:
        """Go on from the findings that a predictor served last; returns False where Prometheus does not answer."""
        try:
            state = self._read(self._clock_seconds())
        except (PrometheusError, ConfigurationError) as error:
            _log.warning("findings not read back", reason=str(error))
            return False
        if state is not None:
            self._alarms.restore(state)
            self._restore_alerts(state.candidates)
            self._restore_marks(self._marks)
            _log.info("findings read back", findings=len(state.findings), series=len(state.candidates))
        return True

    def _read(self, now_seconds: float) -> AlarmSnapshot | None:
        served = self._client.query(f"{READ_TIME.prometheus_name}[{REMEMBERED_SECONDS}s]", at_seconds=now_seconds)
        newest = max((float(one.seconds[-1]) for one in served), default=None)
        if newest is None:
            return None
        at_seconds = newest + 0.5  # a later scrape that failed has marked the series as ended
        opened = _opened(self._client.query(FINDING_OPENED.prometheus_name, at_seconds=at_seconds))
        self._marks = self._client.query(FINDING_MARK.prometheus_name, at_seconds=at_seconds)
        series = self._client.query(CANDIDATE_SINCE.prometheus_name, at_seconds=at_seconds)
        candidates = tuple(self._candidates(series, round(newest * _NANOSECONDS), opened))
        kept = {one.finding_id for one in candidates}
        findings = tuple(one for one in opened.values() if one.finding_id in kept)
        paged_ns = {one.finding_id: one.began_ns for one in findings if one.was_paged}
        updated_ns = max((one.seen_ns for one in candidates), default=0)
        return AlarmSnapshot(updated_ns, candidates, findings, None, paged_ns)

    def _candidates(
        self, series: Iterable[RangeSeries], seen_ns: int, opened: Mapping[str, Open]
    ) -> Iterable[FindingCandidate]:
        oldest: dict[tuple[str, bool], tuple[float, dict[str, str]]] = {}
        for sample in series:
            labels = dict(sample.labels)
            key = labels.get("series", ""), labels.get("cause") == Cause.DEPLOY
            if key not in oldest or sample.values[0] < oldest[key][0]:
                oldest[key] = float(sample.values[0]), labels
        for since, labels in oldest.values():
            latest = self._latest(labels, round(since * _NANOSECONDS), seen_ns)
            if latest is not None:
                finding_id = latest.finding_id if latest.finding_id in opened else ""
                times = latest.began_ns, seen_ns, (latest.began_ns,)
                yield FindingCandidate(latest, *times, is_accepted=bool(finding_id), finding_id=finding_id)

    def _latest(self, labels: Mapping[str, str], since_ns: int, seen_ns: int) -> Finding | None:
        """The candidate as it was; None for a series that this predictor does not have."""
        try:
            metric, own = parse(labels.get("series", ""))
            cause, state = Cause(labels.get("cause", "")), FindingState(labels.get("state", ""))
            severity = Severity(labels.get("severity", ""))
        except (ConfigurationError, ValueError):
            return None
        with self._engine.lock:
            known = self._admission.knows(own)
            row = self._admission.find(tuple(own.items()), metric)
            subject = self._engine.windows.subject(row) if row is not None else None
        if not known:
            return None
        return Finding(
            finding_id=labels.get("finding_id", ""),
            cause=cause,
            state=state,
            severity=severity,
            scope=Scope.SERIES,
            labels=subject.labels if subject is not None else tuple(sorted(own.items())),
            metric=metric,
            began_ns=since_ns,
            updated_ns=seen_ns,
        )

    def _restore_marks(self, series: Iterable[RangeSeries]) -> None:
        """Keep the answers of people, with the series of their findings, whose bar they raise."""
        known = self._alarms.known
        for sample in series:
            labels, time_ns = dict(sample.labels), round(float(sample.values[0]) * _NANOSECONDS)
            marked = {**labels, "cause": Cause.UNKNOWN, "state": FindingState.OVER, "severity": Severity.TICKET}
            finding = self._latest(marked, time_ns, time_ns)
            if finding is None or labels.get("verdict") not in list(Verdict):
                continue
            fact = FindingEvidence(finding.metric, finding.labels)
            before = known.findings.get(finding.finding_id, finding)
            known.findings[finding.finding_id] = replace(before, evidence=(*before.evidence, fact))
            known.marks[finding.finding_id] = Mark(finding.finding_id, Verdict(labels["verdict"]), time_ns=time_ns)

    def _restore_alerts(self, candidates: Iterable[FindingCandidate]) -> None:
        """Let the alerts of series fire that are near their limit or beyond it: this is their hysteresis."""
        rows, saved = [], []
        with self._engine.lock:
            for candidate in candidates:
                row = self._admission.find(candidate.latest.labels, candidate.latest.metric)
                if row is not None and candidate.latest.state in {FindingState.PREDICTED, FindingState.PASSED}:
                    rows.append(row)
                    saved.append(
                        (candidate.since_ns if candidate.latest.state is FindingState.PASSED else 1, candidate.since_ns)
                    )
            if rows:
                self._engine.cycle.restore_alarms(np.array(rows, np.int64), np.array(saved, np.int64))


def _opened(series: Iterable[RangeSeries]) -> dict[str, Open]:
    opened: dict[str, Open] = {}
    for sample in series:
        labels = dict(sample.labels)
        finding_id, cause = labels.get("finding_id", ""), labels.get("cause", "")
        try:
            scope, known = Scope(labels.get("scope", "")), Cause(cause) if cause else None
        except ValueError:
            continue
        began_ns = round(float(sample.values[0]) * _NANOSECONDS)
        paged = labels.get("paged") == "true"
        opened[finding_id] = Open(finding_id, scope, labels.get("unit", ""), known, began_ns, was_paged=paged)
    return opened


def _series_of(finding: Finding | None) -> list[str]:
    """The series of a finding, as text."""
    if finding is None:
        return []
    shown = {(evidence.metric, evidence.labels) for evidence in finding.evidence} | {(finding.metric, finding.labels)}
    return sorted(selector(metric, labels) for metric, labels in shown)


def _mark_labels(mark: Mark, series: str) -> Attributes:
    return ("finding_id", mark.finding_id), ("series", series), ("verdict", str(mark.verdict))


def _candidate_labels(candidate: FindingCandidate) -> Attributes:
    finding = candidate.latest
    return (
        ("cause", str(finding.cause)),
        ("finding_id", candidate.finding_id),
        ("series", selector(finding.metric, finding.labels)),
        ("severity", str(finding.severity)),
        ("state", str(finding.state)),
    )


def _opened_labels(opened: Open) -> Attributes:
    return (
        ("cause", "" if opened.cause is None else str(opened.cause)),
        ("finding_id", opened.finding_id),
        ("paged", str(opened.was_paged).lower()),
        ("scope", str(opened.scope)),
        ("unit", opened.unit),
    )


def selector(metric: str, labels: Attributes) -> str:
    """A series as PromQL selects it, and as `explain.parse` reads it.

    >>> selector("X", (("gpu", "0"),))
    'X{gpu="0"}'
    """
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{metric}{{{pairs}}}" if pairs else metric


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
