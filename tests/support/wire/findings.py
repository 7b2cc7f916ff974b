"""A finding and a mark; each field has a value other than its default."""

from typing import Final

from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import (
    EndReason,
    Finding,
    FindingEvidence,
    FindingState,
    Mark,
    Scope,
    Severity,
    Verdict,
)

HOUR_NS: Final = 3600 * 1_000_000_000
LABELS: Final = (("Hostname", "node1"), ("UUID", "GPU-1"), ("gpu", "3"))
FINDING: Final = Finding(
    finding_id="f1",
    cause=Cause.THERMAL,
    state=FindingState.PREDICTED,
    severity=Severity.PAGE,
    scope=Scope.GPU,
    labels=LABELS,
    metric="DCGM_FI_DEV_GPU_TEMP",
    value=81.0,
    limit=87.0,
    probability=0.97,
    seconds_to_limit=(3600.0, 7200.0, 10_800.5),
    began_ns=HOUR_NS,
    passed_ns=HOUR_NS + 1,
    updated_ns=2 * HOUR_NS,
    ended_ns=3 * HOUR_NS,
    series=2,
    held=True,
    evidence=(FindingEvidence("DCGM_FI_DEV_GPU_TEMP", LABELS, 81.0, 87.0, "limit", HOUR_NS, 2 * HOUR_NS),),
    end_reason=EndReason.CLEARED,
)
MARK: Final = Mark("f1", Verdict.FALSE_ALARM, "ana", "the fan was being replaced", 4 * HOUR_NS)
