"""Kept values of tunables, and the time at which each is compared again with the value that it has replaced.

`HintReceiver` asks `is_check_due` at each step, and runs the trial of a value that is due.
"""

from dataclasses import dataclass
from math import log
from typing import Final

from kernelcast.probe.conditions.checks import HintContext
from kernelcast.probe.recording.step_totals import StepTotals
from kernelcast.probe.tunables import AnyTunable
from kernelcast.probe.tuned.rechecks import Recheck
from kernelcast.tuning.journal import KeptConfiguration

# Steps between two readings of the clock, and the fewest steps of a window.
BOUNDARIES_PER_CHECK: Final = 64
# Shortest window over which the time for an item is measured.
WINDOW_NS: Final = 10_000_000_000
CHANGED_PACE: Final = log(1.2)
# A change of more than a fifth counts if this many windows in a row show it.
LASTING_WINDOWS: Final = 3
ANOTHER_PACE: Final = "the pace of the program has changed by more than a fifth, as by another clock or shape"


@dataclass(frozen=True, slots=True)
class KeptValue:
    """A kept value.

    Attributes:
        tunable: Its tunable.
        start: The value that it has replaced.
        kept: The value that a trial, or an earlier run, has kept.
        check: When it is checked again.
    """

    tunable: AnyTunable
    start: str
    kept: str
    check: Recheck


class Pace:
    """Finds lasting changes of the time that the program takes for an item. For the program's thread.

    Args:
        progress: Steps and items of the program.
    """

    def __init__(self, progress: StepTotals) -> None:
        self._progress = progress
        self.begin_again()

    def begin_again(self) -> None:
        """Take the next window as the usual pace."""
        self._usual: float | None = None
        self._different = 0
        self._begin_window()

    def has_changed(self) -> bool:
        """Whether the last three windows in a row differ from the usual pace by more than a fifth."""
        progress = self._progress
        passed_ns = progress.last_ns - self._since_ns
        items, steps = progress.items - self._items, progress.steps - self._steps
        if passed_ns < WINDOW_NS or steps < BOUNDARIES_PER_CHECK:
            return False
        pace = log(passed_ns / (items or steps))
        self._begin_window()
        if self._usual is None:
            self._usual = pace
        self._different = self._different + 1 if abs(pace - self._usual) > CHANGED_PACE else 0
        return self._different >= LASTING_WINDOWS

    def _begin_window(self) -> None:
        progress = self._progress
        self._since_ns, self._items, self._steps = progress.last_ns, progress.items, progress.steps


class KeptValues:
    """Schedules the checks: one an hour after a value was kept, one after a change of driver or pace.

    For the program's thread, but for `restored`, which is called before the first step.

    Args:
        progress: Steps and items of the program.
        context: Clock and journal of the process.

    Attributes:
        is_empty: Whether there is no such value.
    """

    def __init__(self, progress: StepTotals, context: HintContext) -> None:
        self._clock = context.clock
        self._driver = context.journal.driver if context.journal else ""
        self._pace = Pace(progress)
        self._values: dict[str, KeptValue] = {}
        self._boundaries = 0
        self._due: list[KeptValue] = []
        self.is_empty = True

    def kept(self, tunable: AnyTunable, start: str, last: KeptConfiguration | None = None) -> None:
        """Note that a trial has kept the value of a tunable in place of another; `last`: see `Recheck.of`."""
        self._values[tunable.name] = KeptValue(tunable, start, tunable.kept, Recheck.of(self._now(), last, self._driver))
        self.is_empty = False

    def trial_ended(self, *, checked: str = "", outside: bool = False) -> None:
        """Note that a trial has ended: its steps had another pace.

        Args:
            checked: The tunable whose kept value it has checked; empty for another trial.
            outside: Whether an order or an error has ended it.
        """
        value = self._values.get(checked)
        if value is not None:
            value.check.checked(self._now(), outside=outside)
        self._pace.begin_again()
        self._due = []

    def is_check_due(self, *, epoch: bool) -> bool:
        """Whether a check is due; looks at few steps only, because every step of the program asks."""
        self._boundaries += 1
        if self._boundaries < BOUNDARIES_PER_CHECK and not (epoch and self._due):
            return False
        self._boundaries = 0
        if self._pace.has_changed():
            self._pace.begin_again()
            for value in self._values.values():
                value.check.bring_forward(self._now(), ANOTHER_PACE)
        self._values = {name: value for name, value in self._values.items() if value.tunable.kept == value.kept}
        self.is_empty = not self._values
        self._due = [value for value in self._values.values() if value.check.is_due(self._now)]
        return bool(self._due)

    @property
    def due(self) -> tuple[KeptValue, ...]:
        """The values that are to be checked; one that was replaced since the last look is not."""
        return tuple(value for value in self._due if value.tunable.kept == value.kept)

    def _now(self) -> float:
        return self._clock() / 1e9
