"""Decides which cause each flagged series is published with, and which are not published at all."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Ints
from kernelcast.predictor.causes.find import FoundCause
from kernelcast.predictor.cycle import programs
from kernelcast.predictor.cycle.causes.breach_causes import BreachCauses
from kernelcast.predictor.cycle.causes.device_panels import DeviceRows
from kernelcast.predictor.cycle.detection import Detection
from kernelcast.predictor.cycle.panels import PanelSource
from kernelcast.predictor.cycle.predictions import Abstention, CycleReport
from kernelcast.wire.catalogue.cause_rules import Excuse
from kernelcast.wire.catalogue.meanings import MEANINGS, Cause
from kernelcast.wire.findings import Severity

CLOCK_CAUSES: Final = frozenset({Cause.POWER_BRAKE, Cause.THERMAL, Cause.HARDWARE_SLOWDOWN, Cause.CLOCK_LOW})
"""Causes of a low clock: a fault, which is published although the kernel itself is as it was."""


@dataclass(frozen=True, slots=True, eq=False)
class Explanations:
    """Causes of the flagged series of a cycle.

    Attributes:
        detection: The detector.
        source: Windows and attributes.
        causes: Finds causes from evidence.
    """

    detection: Detection
    source: PanelSource
    causes: BreachCauses

    def __call__(
        self, rows: Ints, newest: Ints, flagged: Bools, known: DeviceRows, report: CycleReport
    ) -> dict[int, FoundCause]:
        """Causes by place of the flagged rows, without those about which nothing is predicted."""
        attributes = self.source.attributes
        kernels = np.flatnonzero(flagged & attributes.kernel[rows])
        found = self._of_kernels(rows, newest, kernels, known, report) if len(kernels) else {}
        others = np.flatnonzero(flagged & ~attributes.kernel[rows])
        block = newest // self.source.histories.block_intervals - 1
        groups = np.stack([attributes.meaning[rows[others]], block[others]], axis=1)
        for meaning, ended in np.unique(groups, axis=0).tolist():
            places = others[(groups == (meaning, ended)).all(axis=1)]
            found |= self._of_devices(rows, places, meaning, known)
        return found

    def _of_devices(self, rows: Ints, places: Ints, number: int, known: DeviceRows) -> dict[int, FoundCause]:
        meaning = self.source.attributes.meanings[number]
        own = FoundCause(meaning.cause, Severity.PAGE, ())
        metric = next((name for name, one in MEANINGS.items() if one is meaning), "")
        limits = self.detection.memory.limit[rows[places]]
        shown = self.causes.of_devices(rows[places], meaning, known, {metric: limits}) if metric else []
        return dict.fromkeys(places.tolist(), own) | {
            place: one for place, one in zip(places.tolist(), shown, strict=False) if one is not None
        }

    def _of_kernels(
        self, rows: Ints, newest: Ints, places: Ints, known: DeviceRows, report: CycleReport
    ) -> dict[int, FoundCause]:
        attributes, memory = self.source.attributes, self.detection.memory
        judged = attributes.kernel[rows] & np.isfinite(memory.baseline[rows])
        away = judged & programs.moved(memory.value[rows], np.where(judged, memory.baseline[rows], 1.0))
        whole = programs.moved_as_a_whole(attributes.program[rows], away, judged)[places]
        mine = rows[places]
        shared = self.detection.shared(mine)
        block = int(newest[places].max(initial=0)) // self.source.histories.block_intervals - 1
        slow_clock = self.detection.clock_fell(mine, block, np.ones(len(mine), np.bool_))
        shown = self.causes.of_kernels(mine, newest[places], rows, known)
        found: dict[int, FoundCause] = {}
        for number, (place, (cause, reason)) in enumerate(zip(places.tolist(), shown, strict=True)):
            if cause is not None and cause.cause in CLOCK_CAUSES:
                found[place] = cause
            elif slow_clock[number] or reason is Excuse.SOFTWARE_POWER_CAP:
                report.abstentions[Abstention.CLOCK_FELL] += 1
            elif cause is not None and cause.cause is Cause.CONTENTION:
                found[place] = cause
            elif whole[number] and shared[number]:
                # The GPU's clock is not known, so that the rule for contention cannot hold.
                found[place] = FoundCause(Cause.CONTENTION, Severity.PAGE, ())
            elif whole[number] and not memory.firing[mine[number]]:
                # The next block shows whether it is a step, which is a deploy.
                report.abstentions[Abstention.PROGRAM_WIDE] += 1
            else:
                found[place] = cause or self._own(int(mine[number]))
        return found

    def _own(self, row: int) -> FoundCause:
        attributes = self.source.attributes
        return FoundCause(attributes.meanings[attributes.meaning[row]].cause, Severity.PAGE, ())
