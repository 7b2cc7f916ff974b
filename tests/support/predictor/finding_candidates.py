"""Candidate findings for tests of the alarms."""

from dataclasses import replace
from typing import Any, Final

from kernelcast.predictor.alarms.alarms import Alarms
from kernelcast.predictor.alarms.grouping import NO_PROGRAMS, DevicePrograms
from kernelcast.predictor.alarms.settings import AlarmSettings
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import Finding, FindingState, Scope, Severity

CYCLE_SECONDS: Final = 300.0
MINUTE: Final = 60.0
HOUR: Final = 3600.0
START_NS: Final = 1_800_000_000 * 1_000_000_000
TEMPERATURE: Final = "DCGM_FI_DEV_GPU_TEMP"


def candidate(
    gpu: int = 0, *, node: str = "r1-n1", metric: str = TEMPERATURE, program: str = "", **changes: Any
) -> Finding:
    """A passed limit of a GPU's temperature, unless changed."""
    labels = {"Hostname": node, "UUID": f"GPU-{node}-{gpu}", "gpu": str(gpu), "program": program}
    made = Finding(
        finding_id="",
        cause=Cause.THERMAL,
        state=FindingState.PASSED,
        severity=Severity.PAGE,
        scope=Scope.SERIES,
        labels=tuple(sorted((name, value) for name, value in labels.items() if value)),
        metric=metric,
        value=88.0,
        limit=87.0,
    )
    return replace(made, **changes)


def predicted(gpu: int = 0, *, probability: float = 0.95, **changes: Any) -> Finding:
    """A prediction that a limit is reached in twelve hours."""
    times = (6 * HOUR, 12 * HOUR, 18 * HOUR)
    state = FindingState.PREDICTED
    usual: dict[str, Any] = {"state": state, "probability": probability, "seconds_to_limit": times, "value": 80.0}
    return candidate(gpu, **usual | changes)


class Run:
    """Alarms of which each cycle comes five minutes after the one before."""

    def __init__(self, **settings: Any) -> None:
        self.settings = AlarmSettings(**{"rack_pattern": r"^(r\d+)", **settings})
        self.alarms = Alarms(self.settings)
        self.cycles = 0

    @property
    def now_ns(self) -> int:
        return START_NS + round(self.cycles * CYCLE_SECONDS * 1e9)

    def step(self, *found: Finding, watched: int = 100, programs: DevicePrograms = NO_PROGRAMS) -> list[Finding]:
        self.cycles += 1
        return self.alarms.step(found, watched, self.now_ns, programs=programs)

    def steps(
        self, seconds: float, *found: Finding, watched: int = 100, programs: DevicePrograms = NO_PROGRAMS
    ) -> list[Finding]:
        """The same candidates for some time; returns all changes."""
        changes = []
        for _ in range(round(seconds / CYCLE_SECONDS)):
            changes += self.step(*found, watched=watched, programs=programs)
        return changes
