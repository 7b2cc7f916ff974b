"""A trial of a value in a process without other ranks: the trial of a job of one rank, with a meeting at each boundary.

`HintReceiver` runs one for a hint, or to check a kept value.
"""

from typing import Final

from kernelcast.probe.conditions.checks import HintContext
from kernelcast.probe.ranks.followed import FollowedTrial
from kernelcast.probe.ranks.messages import Ended, Report, Work
from kernelcast.probe.ranks.pooled import PooledTrial
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.tunables import AnyTunable
from kernelcast.tuning.experiment import Decision
from kernelcast.wire.events import Hint
from kernelcast.wire.tuning.pauses import LATER

LONGEST_PAUSE_NS: Final = 3600 * 1_000_000_000
"""A trial that is paused for longer ends without a decision: the program may have changed."""


class LocalTrial:
    """Compares a value with the kept one. For the program's thread. Only `boundary` puts the tried value in force.

    Args:
        hint: The hint that proposes the value; None to check a kept value against the value before it.
        tunable: The tunable.
        value: The value tried.
        recorder: Measures the kernels.
        context: Rules, clock and budget.
    """

    def __init__(
        self, hint: Hint | None, tunable: AnyTunable, value: str, recorder: Recorder, context: HintContext
    ) -> None:
        self.hint = hint
        self.tunable = tunable
        self.old = tunable.kept
        work = Work(hint.hint_id if hint else "", tunable.name, value, self.old)
        self._pooled = PooledTrial.of(work, tunable, recorder, context)
        self._followed = FollowedTrial(work, tunable, recorder, context.budget, context.step_clock)
        self._paused_since_ns: int | None = None
        self._begin_launch()

    @property
    def just_survived(self) -> bool:
        """Whether the last step completed the first few of the value: it does not end the process."""
        return self._followed.survived

    def step_ended(self, items: float) -> None:
        """Add the step that has just ended to the present launch, which may last several steps (an epoch)."""
        self._followed.step_ended(items)

    def boundary(self) -> Ended | None:
        """Set the value of the next launch; at the end of the experiment, set the decided value and return the end."""
        self._paused_since_ns = None
        self._followed.end_launch()
        launches, device = self._followed.times()
        self._pooled.pool([Report(trial=self._pooled.work.trial, launches=launches, device=device)], has_run=True)
        ended = self._pooled.ended()
        if ended is None:
            self._begin_launch()
            return None
        return self._close(ended)

    def pause(self, reason: str, now_ns: int) -> str:
        """Put the old value in force until the next `boundary`; the step that has just ended is not compared.

        Args:
            reason: Reason for the pause.
            now_ns: Unix nanoseconds.

        Returns:
            The reason to end the trial if it has been paused for too long; empty otherwise.
        """
        if self._paused_since_ns is None:
            self._paused_since_ns = now_ns
            self._followed.pause()
            self._pooled.skip()
        overdue = now_ns - self._paused_since_ns >= LONGEST_PAUSE_NS
        return f"it was paused for {LONGEST_PAUSE_NS // 10**9} s: {reason}; {LATER}" if overdue else ""

    def end(self, reason: str) -> Ended:
        """End the trial now, without a decision unless there is one; the present launch is charged, not compared."""
        self._followed.end_launch()
        return self._close(self._pooled.abandon(reason))

    def _begin_launch(self) -> None:
        self._followed.follow(self._pooled.plan(1))
        self._followed.begin_launch()

    def _close(self, ended: Ended) -> Ended:
        self._followed.close(ended.value if ended.decision == Decision.KEPT.value else self.old)
        return ended
