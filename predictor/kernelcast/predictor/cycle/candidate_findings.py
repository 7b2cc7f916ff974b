"""Makes a cycle's candidate findings, each about one series: of predicted and passed limits, and of observed causes.

`Publication` and the modules of `cycle.faults` call it. `alarms` accepts some, and groups them into findings.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from kernelcast.predictor.causes.find import FoundCause
from kernelcast.predictor.cycle.predictions import Degradation, Prediction
from kernelcast.predictor.passage.first_passage import QUANTILES
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import Finding, FindingEvidence, FindingState, Scope
from kernelcast.wire.identity import Labels

_ID_DIGITS: Final = 16


def breach_candidate(prediction: Prediction, *, since_ns: int) -> Finding:
    """The candidate of a series with an alert; a variant of a kernel has that of the kernel's series.

    Args:
        prediction: Of a series with a degradation.
        since_ns: Since when the alert fires, Unix nanoseconds.
    """
    degradation, subject = prediction.degradation, prediction.subject.without_variant
    if degradation is None:
        raise ValueError(f"{subject.metric} has no degradation; a candidate needs one")
    identity = repr((subject.metric, subject.labels, str(degradation.cause), since_ns))
    evidence = FindingEvidence(
        metric=subject.metric,
        labels=subject.labels,
        value=prediction.value,
        reference=degradation.threshold,
        against="limit",
        begin_ns=since_ns,
        end_ns=prediction.end_ns,
    )
    return Finding(
        finding_id=hashlib.sha256(identity.encode()).hexdigest()[:_ID_DIGITS],
        cause=degradation.cause,
        state=FindingState.PASSED if degradation.passed or degradation.crossed_ns else FindingState.PREDICTED,
        severity=degradation.severity,
        scope=Scope.SERIES,
        labels=subject.labels,
        metric=subject.metric,
        value=prediction.value,
        limit=degradation.threshold,
        probability=max(degradation.probability.values(), default=None),
        seconds_to_limit=_times(degradation),
        began_ns=since_ns,
        passed_ns=degradation.crossed_ns,
        updated_ns=prediction.end_ns,
        evidence=(evidence, *degradation.evidence),
    )


def observed_candidate(cause: FoundCause, labels: Labels, end_ns: int, metric: str = "") -> Finding:
    """A candidate finding of a cause that needs no limit.

    Args:
        cause: The cause.
        labels: Labels of the GPU or of the kernel.
        end_ns: Time of the newest value, Unix nanoseconds.
        metric: Series that shows it; that of the first fact where it is empty.
    """
    fact = cause.evidence[0]
    return Finding(
        finding_id="",
        cause=cause.cause,
        state=FindingState.OBSERVED,
        severity=cause.severity,
        scope=Scope.SERIES,
        labels=labels,
        metric=metric or fact.metric,
        value=fact.value,
        limit=fact.reference,
        began_ns=fact.begin_ns,
        updated_ns=end_ns,
        evidence=cause.evidence,
    )


def of_each_series(candidates: Iterable[Finding]) -> list[Finding]:
    """The first candidate of each metric and labels; a deploy that made a kernel slower is one beside it."""
    first: dict[tuple[str, Labels, bool], Finding] = {}
    for candidate in candidates:
        first.setdefault((candidate.metric, candidate.labels, candidate.cause is Cause.DEPLOY), candidate)
    return list(first.values())


def _times(degradation: Degradation) -> tuple[float | None, float | None, float | None]:
    low, middle, high = (degradation.seconds.get(quantile) for quantile in QUANTILES)
    return low, middle, high
