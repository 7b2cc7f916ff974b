"""Kept values of tunables, and the time at which each is compared again with the value that it has replaced.

`HintReceiver` asks `is_check_due` at each step, and runs the trial of a value that is due.
"""

from dataclasses import dataclass
from math import log
from typing import Final

from kernelcast.probe.conditions.checks import HintContext
from kernelcast.probe.outcomes import OutcomeQueue
from kernelcast.probe.recording.step_totals import StepTotals
from kernelcast.probe.tunables import AnyTunable
from kernelcast.probe.tuned.confirmation import Confirmed, Verdict
from kernelcast.probe.tuned.notes import CandidateNotes
from kernelcast.probe.tuned.reports import SearchReports, into
from kernelcast.tuning.journal import KeptConfiguration

RECHECK_NS: Final = 3600 * 1_000_000_000
# Steps between two readings of the clock, and the fewest steps of a window.
BOUNDARIES_PER_CHECK: Final = 64
# Shortest window over which the time for an item is measured.
WINDOW_NS: Final = 10_000_000_000
CHANGED_PACE: Final = log(1.2)
# A change of more than a fifth counts if this many windows in a row show it.
LASTING_WINDOWS: Final = 3
AN_HOUR: Final = "an hour has passed"
ANOTHER_DRIVER: Final = "it was kept with driver {}, and this is {}"
ANOTHER_PACE: Final = "the pace of the program has changed by more than a fifth, as by another clock or shape"


@dataclass(slots=True)
class KeptValue:
    """A kept value.

    Attributes:
        tunable: Its tunable.
        start: The value that it has replaced.
        kept: The value.
        due_ns: Unix nanoseconds of its check; None if there is none.
        reason: Why it is checked.
        checked_ns: Unix nanoseconds of the last check.
    """

    tunable: AnyTunable
    start: str
    kept: str
    due_ns: int | None
    reason: str = AN_HOUR
    checked_ns: int = 0


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
        context: Clock, journal and code version of the process.
        outcomes: Takes the outcomes of checks.

    Attributes:
        is_empty: Whether there is no such value.
    """

    def __init__(self, progress: StepTotals, context: HintContext, outcomes: OutcomeQueue) -> None:
        self._clock = context.clock
        self._journal = context.journal
        self._notes = CandidateNotes(context.journal, context.code_version)
        self._reports = SearchReports(into(outcomes))
        self._pace = Pace(progress)
        self._values: dict[str, KeptValue] = {}
        self._boundaries = 0
        self._due: list[KeptValue] = []
        self.is_empty = True

    def restored(self, tunable: AnyTunable, start: str, last: KeptConfiguration) -> None:
        """Note a value that an earlier run has kept in place of the program's own."""
        driver = self._journal.driver if self._journal else ""
        kept_ns, now_ns = round(last.time * 1e9), self._clock()
        # The clock that has written `kept_ns` may have been ahead.
        value = KeptValue(tunable, start, last.config, max(now_ns, min(kept_ns, now_ns) + RECHECK_NS))
        if last.driver != driver:
            value.due_ns = now_ns
            value.reason = ANOTHER_DRIVER.format(last.driver or "unknown", driver or "unknown")
        self._add(value)

    def kept(self, tunable: AnyTunable, start: str) -> None:
        """Note that a trial has kept a tunable's value in place of another."""
        self._add(KeptValue(tunable, start, tunable.kept, self._clock() + RECHECK_NS))

    def check_begins(self, value: KeptValue) -> None:
        """Report a check: the trial of the value before, so that little time is lost."""
        self._reports.search_began(value.tunable.name, value.kept, f"checked again: {value.reason}")

    def checked(self, tunable: AnyTunable, kept: str, verdict: Verdict, *, outside: bool) -> None:
        """Remember and report the end of a check; one that an order or an error has ended is repeated after an hour."""
        confirmed, is_kept = Confirmed.of(0, verdict), tunable.kept == kept
        self._reports.search_ended(tunable.name, (confirmed,), lambda _: kept, tunable.kept, kept)
        self._notes.checked(tunable.name, kept, confirmed.reason, is_kept=is_kept, outside=outside)
        value = self._values.get(tunable.name)
        if value is not None:
            value.checked_ns, value.reason = self._clock(), AN_HOUR
            value.due_ns = value.checked_ns + RECHECK_NS if outside else None
        self.trial_ended()

    def trial_ended(self) -> None:
        """Note that a trial has ended: its steps had another pace."""
        self._pace.begin_again()
        self._due = []

    def is_check_due(self, *, epoch: bool) -> bool:
        """Whether a check is due; looks at few steps only, because every step of the program asks."""
        self._boundaries += 1
        if self._boundaries < BOUNDARIES_PER_CHECK and not (epoch and self._due):
            return False
        self._boundaries = 0
        now_ns = self._clock()
        if self._pace.has_changed():
            self._pace.begin_again()
            for value in self._values.values():
                if value.due_ns is not None or now_ns - value.checked_ns >= RECHECK_NS:
                    value.due_ns, value.reason = now_ns, ANOTHER_PACE
        self._values = {name: one for name, one in self._values.items() if one.tunable.kept == one.kept}
        self.is_empty = not self._values
        self._due = [one for one in self._values.values() if one.due_ns is not None and one.due_ns <= now_ns]
        return bool(self._due)

    @property
    def due(self) -> tuple[KeptValue, ...]:
        """The values that are to be checked; one that was replaced since the last look is not."""
        return tuple(one for one in self._due if one.tunable.kept == one.kept)

    def _add(self, value: KeptValue) -> None:
        self._values[value.tunable.name] = value
        self.is_empty = False
