"""Makes findings about single series from the predictions of a cycle; `alarms` groups and filters them."""

import hashlib
from collections.abc import Iterable
from typing import Final

from kernelcast.predictor.cycle.predictions import Degradation, Prediction
from kernelcast.predictor.passage.first_passage import QUANTILES
from kernelcast.wire.findings import Finding, FindingEvidence, FindingState, Scope

_ID_DIGITS: Final = 16


def findings_of(alarming: Iterable[tuple[Prediction, int]]) -> list[Finding]:
    """One finding for each series with an alert; variants of a kernel share its series.

    Args:
        alarming: Predictions, the most urgent first, and since when their alerts fire, Unix nanoseconds.
    """
    findings: dict[tuple[object, ...], Finding] = {}
    for prediction, since_ns in alarming:
        found = finding_of(prediction, since_ns=since_ns)
        findings.setdefault((found.metric, found.labels), found)
    return list(findings.values())


def finding_of(prediction: Prediction, *, since_ns: int) -> Finding:
    """A finding of a series with an alert.

    Args:
        prediction: Of a series with a degradation.
        since_ns: Since when the alert fires.
    """
    degradation, subject = prediction.degradation, prediction.subject.without_variant
    if degradation is None:
        raise ValueError(f"{subject.metric} has no degradation; a finding needs one")
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
        state=FindingState.PASSED if degradation.passed else FindingState.PREDICTED,
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


def _times(degradation: Degradation) -> tuple[float | None, float | None, float | None]:
    low, middle, high = (degradation.seconds.get(quantile) for quantile in QUANTILES)
    return low, middle, high
