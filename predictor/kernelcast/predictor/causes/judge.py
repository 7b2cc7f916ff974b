"""Finds the cause and threshold of a flagged series, or the reason to abstain.

Load is not degradation: a temperature is judged only where power and utilisation were steady, a kernel only as a ratio
to its own baseline, after its clock and its program's other kernels have been checked.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.causes.cases import Abstention, Case, Finding, abstain
from kernelcast.predictor.causes.regimes import Regimes, WatchReason
from kernelcast.predictor.screening.blocks import MAD_TO_SIGMA
from kernelcast.predictor.series.subjects import DeviceKey, Subject
from kernelcast.predictor.series.windows import Windows
from kernelcast.predictor.settings import JudgeSettings
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.meanings import Cause

_CLOCK_FALL_RATIO: Final = 0.03
_CLOCK_POINTS: Final = 5
_UTILISATION_POINTS: Final = 15.0
_SPREADS: Final = 4.0
_LOOK_BACK: Final = 3


@dataclass(frozen=True, slots=True)
class Change:
    """Change of a companion series over the span of a flagged one: medians of its first and its last third."""

    before: float
    after: float

    @property
    def ratio(self) -> float:
        """The change relative to the first median; 0 where that is 0."""
        return (self.after - self.before) / abs(self.before) if self.before else 0.0


class Judge:
    """Derives findings; reads the windows of companion series, so call it under the windows' lock."""

    def __init__(self, settings: JudgeSettings, windows: Windows, regimes: Regimes) -> None:
        self._settings = settings
        self._windows = windows
        self._regimes = regimes
        self._devices: dict[DeviceKey, Subject] = {}

    def know_devices(self, subjects: list[Subject]) -> None:
        """Record the SM clock series of each GPU, so that a kernel's clock can be looked up."""
        self._devices = {one.device: one for one in subjects if one.metric == device.SM_CLOCK.prometheus_name}

    def judge(self, case: Case) -> Finding:
        """Derive the finding for one flagged series."""
        if case.watch is WatchReason.TEMPERATURE:
            return self._temperature(case)
        if case.watch is WatchReason.MEMORY:
            return self._memory(case)
        if case.watch is WatchReason.KERNEL:
            return self._kernel(case)
        return Finding()

    def _temperature(self, case: Case) -> Finding:
        threshold = self._settings.thresholds.get(case.subject.metric)
        if threshold is None:
            threshold = self._last(case.subject.sibling(device.SLOWDOWN_TEMP.prometheus_name))
        if threshold is None:
            return abstain(Abstention.NO_THRESHOLD)
        if case.slope <= 0 or case.settling:
            return abstain(Abstention.RECOVERING if case.slope <= 0 else Abstention.SETTLING)
        power = self._changes(case, case.subject.sibling(device.POWER_USAGE.prometheus_name))
        busy = self._changes(case, case.subject.sibling(device.GPU_UTIL.prometheus_name))
        unsteady = any(abs(change.ratio) > self._settings.stable_load_ratio for change in power)
        if unsteady or any(abs(change.after - change.before) > _UTILISATION_POINTS for change in busy):
            return abstain(Abstention.LOAD_CHANGED)
        evidence = [("slope_per_interval", case.slope), ("level", case.level)]
        evidence += [("power_change_ratio", change.ratio) for change in power[:1]]
        return Finding(Cause.THERMAL, threshold, evidence=tuple(evidence))

    def _memory(self, case: Case) -> Finding:
        threshold = self._settings.thresholds.get(case.subject.metric)
        if threshold is None:
            threshold = self._memory_limit(case.subject, case.level)
        if threshold is None:
            return abstain(Abstention.NO_THRESHOLD)
        if case.slope <= 0:
            return abstain(Abstention.RECOVERING)
        if case.settling:
            return abstain(Abstention.SETTLING)
        before = case.window[: -case.span]
        if np.isfinite(before).any() and case.level <= np.nanmax(before):
            return abstain(Abstention.REFILLING)
        return Finding(
            Cause.MEMORY_LEAK, threshold, evidence=(("slope_per_interval", case.slope), ("level", case.level))
        )

    def _kernel(self, case: Case) -> Finding:
        _, baseline, spread = self._regimes.known(case.row)
        if not np.isfinite(baseline) or baseline <= 0:
            return abstain(Abstention.NO_BASELINE)
        if spread > self._settings.wide_baseline_ratio * baseline:
            return abstain(Abstention.WIDE_BASELINE)
        margin = max(self._settings.kernel_slowdown_ratio, _SPREADS * spread / baseline)
        threshold = self._settings.thresholds.get(case.subject.metric, baseline * (1 + margin))
        if case.level <= threshold and (case.slope <= 0 or case.settling):
            return abstain(Abstention.RECOVERING if case.slope <= 0 else Abstention.SETTLING)
        return self._slow_kernel(case, baseline, threshold)

    def _slow_kernel(self, case: Case, baseline: float, threshold: float) -> Finding:
        if self.clock_fell_on(case.subject.device):
            return abstain(Abstention.CLOCK_FELL)
        evidence = (("baseline", baseline), ("ratio_to_baseline", case.level / baseline))
        if not case.program_wide:
            return Finding(Cause.KERNEL_SLOWDOWN, threshold, evidence=evidence)
        if case.shared_device:
            return Finding(Cause.CONTENTION, threshold, evidence=evidence)
        return abstain(Abstention.PROGRAM_WIDE)

    def clock_fell_on(self, key: DeviceKey) -> bool:
        """Whether a GPU's clock is lower now than when it was first seen, or than earlier in its window."""
        clock = self._devices.get(key)
        row = self._windows.row(clock) if clock is not None else None
        if row is None:
            return False
        values = self._windows.matrix(np.array([row]))[0].astype(np.float64)
        known = values[np.isfinite(values)]
        if not len(known):
            return False
        _, baseline, _ = self._regimes.known(row)
        usual = max(float(np.median(known[: max(len(known) // 3, 1)])), baseline if np.isfinite(baseline) else 0.0)
        return float(np.median(known[-_CLOCK_POINTS:])) < usual * (1 - _CLOCK_FALL_RATIO)

    def _memory_limit(self, subject: Subject, used: float) -> float | None:
        parts = [self._last(subject.sibling(row.prometheus_name)) for row in (device.FB_FREE, device.FB_RESERVED)]
        if parts[0] is None:
            return None
        latest_used = self._last(subject)
        total = (used if latest_used is None else latest_used) + parts[0] + (parts[1] or 0.0)
        return self._settings.memory_full_ratio * total

    def _last(self, subject: Subject) -> float | None:
        row = self._windows.row(subject)
        if row is None:
            return None
        values = self._windows.matrix(np.array([row]))[0]
        known = np.flatnonzero(np.isfinite(values))
        return float(values[known[-1]]) if len(known) else None

    def _changes(self, case: Case, companion: Subject) -> list[Change]:
        """Changes of a companion over the flagged span and three times that: temperature follows load with a delay."""
        row = self._windows.row(companion)
        if row is None:
            return []
        values = self._windows.matrix(np.array([row]))[0].astype(np.float64)
        changes = (_thirds(values[-_LOOK_BACK * case.span :]), _thirds(values[-case.span :]))
        return [change for change in changes if change is not None]


def _thirds(values: Floats) -> Change | None:
    known = values[np.isfinite(values)]
    third = len(known) // 3
    if not third:
        return None
    before, after = float(np.median(known[:third])), float(np.median(known[-third:]))
    spread = MAD_TO_SIGMA * float(np.median(np.abs(known[-third:] - after)))
    # A difference within the noise is none.
    noise = spread / np.sqrt(third)
    return Change(before, before if abs(after - before) < 2 * noise else after)
