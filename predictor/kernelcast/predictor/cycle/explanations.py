"""Decides which cause each flagged series is published with, and which are not published at all.

`Publication` calls it once a cycle. Nothing is published about a kernel that is slow for a reason that is no fault
of it, such as a lower clock; `explain` shows the reason.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Ints
from kernelcast.predictor.causes.find import FoundCause
from kernelcast.predictor.cycle import programs
from kernelcast.predictor.cycle.breach_causes import BreachCauses
from kernelcast.predictor.cycle.detection import Detection
from kernelcast.predictor.cycle.device_panels import DeviceRows
from kernelcast.predictor.cycle.panels import PanelSource
from kernelcast.predictor.cycle.predictions import Abstention, CycleReport
from kernelcast.wire.catalogue.cause_rules import Excuse
from kernelcast.wire.catalogue.meanings import MEANINGS, Cause
from kernelcast.wire.findings import Severity

Decision = FoundCause | Abstention
"""The cause that a series is published with, or the reason for publishing nothing about it."""
CLOCK_CAUSES: Final = frozenset({Cause.POWER_BRAKE, Cause.THERMAL, Cause.HARDWARE_SLOWDOWN, Cause.CLOCK_LOW})
"""Causes of a low clock: a fault, which is published although the kernel itself is as it was."""


@dataclass(frozen=True, slots=True, eq=False)
class Explanations:
    """Causes of the flagged series of a cycle. Only the thread that runs cycles calls it.

    Attributes:
        detection: The detector.
        source: Windows and attributes.
        causes: Finds causes from evidence.
        kept: Generation of each row with an alert, and the last decision about it while its limit was passed.
    """

    detection: Detection
    source: PanelSource
    causes: BreachCauses
    kept: dict[int, tuple[int, Decision]] = field(default_factory=dict)

    def __call__(
        self, rows: Ints, newest: Ints, flagged: Bools, known: DeviceRows, report: CycleReport
    ) -> dict[int, FoundCause]:
        """Causes of the flagged rows, without those about which nothing is predicted.

        Args:
            rows: Shape (n,), rows that report.
            newest: Shape (n,), newest interval of each.
            flagged: Shape (n,), rows with an alert or a probable breach.
            known: Rows of the GPUs' metrics.
            report: Counts the reasons for which nothing is predicted.

        Returns:
            Causes by place in `rows`.
        """
        attributes = self.source.attributes
        kernels = np.flatnonzero(flagged & attributes.kernel[rows])
        causes = self._of_kernels(rows, newest, kernels, known, report) if len(kernels) else {}
        others = np.flatnonzero(flagged & ~attributes.kernel[rows])
        block = newest // self.source.histories.block_intervals - 1
        groups = np.stack([attributes.meaning[rows[others]], block[others]], axis=1)
        for meaning, ended in np.unique(groups, axis=0).tolist():
            places = others[(groups == (meaning, ended)).all(axis=1)]
            causes |= self._of_devices(rows, places, meaning, known)
        return causes

    def abstention_of(self, row: int) -> Abstention | None:
        """The reason for publishing nothing about a kernel whose alert fires; None where it is published."""
        state = self.detection.state
        generation, decided = self.kept.get(row, (-1, None))
        lasts = generation == state.generation[row] and state.since_ns[row] > 0
        return decided if lasts and isinstance(decided, Abstention) else None

    def _of_devices(self, rows: Ints, places: Ints, number: int, known: DeviceRows) -> dict[int, FoundCause]:
        meaning = self.source.attributes.meanings[number]
        own = FoundCause(meaning.cause, Severity.PAGE, ())
        metric = next((name for name, one in MEANINGS.items() if one is meaning), "")
        limits = self.detection.state.limit[rows[places]]
        shown = self.causes.of_devices(rows[places], meaning, known, {metric: limits}) if metric else []
        return dict.fromkeys(places.tolist(), own) | {
            place: one for place, one in zip(places.tolist(), shown, strict=False) if one is not None
        }

    def _of_kernels(
        self, rows: Ints, newest: Ints, places: Ints, known: DeviceRows, report: CycleReport
    ) -> dict[int, FoundCause]:
        attributes, state = self.source.attributes, self.detection.state
        judged = attributes.kernel[rows] & np.isfinite(state.baseline[rows])
        away = judged & programs.moved(state.value[rows], np.where(judged, state.baseline[rows], 1.0))
        whole = programs.moved_as_a_whole(attributes.program[rows], away, judged)[places]
        mine = rows[places]
        shared = self.detection.shared(mine)
        causes: dict[int, FoundCause] = {}
        for number, slow_clock, (cause, reason) in self._shown(mine, newest[places], rows, known):
            place = int(places[number])
            row = int(mine[number])
            now = self._decided(
                row,
                cause,
                reason,
                slow_clock=slow_clock,
                whole=bool(whole[number]),
                shared=bool(shared[number]),
            )
            decided = self._lasting(row, now)
            if isinstance(decided, Abstention):
                report.abstentions[decided] += 1
            else:
                causes[place] = decided
        return causes

    def _shown(
        self, mine: Ints, newest: Ints, live: Ints, known: DeviceRows
    ) -> Iterator[tuple[int, bool, tuple[FoundCause | None, Excuse | None]]]:
        """Place of each kernel, whether the clock of its GPU is or was low, and the result of the rules.

        Kernels with one newest block are evaluated together: hosts whose clock is behind have earlier blocks.
        """
        blocks = newest // self.source.histories.block_intervals
        for block in np.unique(blocks).tolist():
            here = np.flatnonzero(blocks == block)
            part, last = mine[here], newest[here]
            fell = self.detection.clock_fell(part, last, np.ones(len(part), np.bool_)).tolist()
            yield from zip(here.tolist(), fell, self.causes.of_kernels(part, last, live, known), strict=True)

    def _decided(
        self,
        row: int,
        cause: FoundCause | None,
        reason: Excuse | None,
        *,
        slow_clock: bool,
        whole: bool,
        shared: bool,
    ) -> Decision:
        """The cause of one kernel as the present evidence shows it."""
        # The rules find `cause`, and `reason`, for which it is slow without a fault. `slow_clock`: the clock of its GPU
        # is or was low; `whole`: most kernels of its program changed at once; `shared`: other programs use its GPU.
        if cause is not None and cause.cause in CLOCK_CAUSES:
            return cause
        if slow_clock or reason is Excuse.SOFTWARE_POWER_CAP:
            return Abstention.CLOCK_FELL
        if cause is not None and cause.cause is Cause.CONTENTION:
            return cause
        if whole and shared:
            # The GPU's clock is not known, so that the rule for contention cannot hold.
            return FoundCause(Cause.CONTENTION, Severity.PAGE, ())
        if whole and not self.detection.state.firing[row]:
            # The next block shows whether it is a step, which is a deploy.
            return Abstention.PROGRAM_WIDE
        return cause or self._own(row)

    def _lasting(self, row: int, decided: Decision) -> Decision:
        """The decision about a kernel, given the earlier one about the same alert."""
        state = self.detection.state
        generation, passed = int(state.generation[row]), state.has_passed(row)
        begins = state.since_ns[row] == 0
        known = self.kept.pop(row, None)
        before = known[1] if known is not None and known[0] == generation and not begins else None
        if begins and passed and not _shows_clock(decided) and self.detection.has_clock(row):
            # The samples of its GPU may arrive after its own; the next cycle has them.
            decided = Abstention.COMPANIONS_LATE
        elif before not in (None, Abstention.COMPANIONS_LATE) and not passed:
            # It is no longer slow, so that no evidence is left; the alert goes on until that has lasted.
            decided = before
        if passed or before is not None:
            self.kept[row] = generation, decided
        return decided

    def _own(self, row: int) -> FoundCause:
        attributes = self.source.attributes
        return FoundCause(attributes.meanings[attributes.meaning[row]].cause, Severity.PAGE, ())


def _shows_clock(decided: Decision) -> bool:
    """Whether the clock of the GPU explains a slow kernel."""
    if isinstance(decided, Abstention):
        return decided is Abstention.CLOCK_FELL
    return decided.cause in CLOCK_CAUSES
