"""Findings about single series, from predictions: the input of causes, grouping and alarm control."""

import hashlib
from typing import Final

from kernelcast.predictor.cycle.predictions import Degradation, Prediction
from kernelcast.predictor.passage.first_passage import QUANTILES
from kernelcast.wire.findings import Finding, FindingEvidence, FindingState, Scope, Severity

_ID_DIGITS: Final = 16


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
        severity=Severity.PAGE,
        scope=Scope.SERIES,
        labels=subject.labels,
        metric=subject.metric,
        value=prediction.value,
        limit=degradation.threshold,
        probability=max(degradation.probability.values(), default=None),
        seconds_to_limit=_times(degradation),
        began_ns=since_ns,
        updated_ns=prediction.end_ns,
        evidence=(evidence,),
    )


def _times(degradation: Degradation) -> tuple[float | None, float | None, float | None]:
    low, middle, high = (degradation.seconds.get(quantile) for quantile in QUANTILES)
    return low, middle, high
