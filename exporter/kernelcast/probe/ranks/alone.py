"""A trial of a value in a process without other ranks: the trial of a job of one rank, with a meeting at each boundary.

`HintReceiver` begins one for a hint, or to check a kept value, and calls it at each step.
"""

from typing import Final

from kernelcast.probe.conditions.checks import HintContext, at_its_boundary
from kernelcast.probe.ranks.council import CouncilMember
from kernelcast.probe.ranks.followed import FollowedTrial
from kernelcast.probe.ranks.messages import Ended, Report, Work
from kernelcast.probe.ranks.pooled import PooledTrial
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.tunables import AnyTunable
from kernelcast.tuning.experiment import Decision
from kernelcast.wire.tuning.pauses import LATER

TRIED: Final = "a hint is being tried"
LONGEST_PAUSE_NS: Final = 3600 * 1_000_000_000
"""A trial that is paused for longer ends without a decision: the program may have changed."""


class LocalTrial:
    """Compares a value with the kept one. Implements `Driver`, for the program's thread.

    Args:
        work: Id, tunable and values of the trial.
        tunable: The tunable.
        member: The process; it gets the end of the trial.
        recorder: Measures the kernels.
        context: Rules, clock, pauses and budget.

    Attributes:
        reason: The reason for which nothing else may be tried; empty once the trial has ended.
    """

    def __init__(
        self, work: Work, tunable: AnyTunable, member: CouncilMember, recorder: Recorder, context: HintContext
    ) -> None:
        self.reason = TRIED
        self._work = work
        self._tunable = tunable
        self._member = member
        self._context = context
        self._pooled = PooledTrial.of(work, tunable, recorder, context)
        self._followed = FollowedTrial(work, tunable, recorder, context.budget, context.step_clock)
        self._paused_since_ns: int | None = None
        self._begin_launch()

    def step_ended(self, items: float, *, epoch: bool) -> None:
        """Add the step to the present launch; where the value may change, begin the next launch, pause or end."""
        self._followed.step_ended(items)
        if not at_its_boundary(self._tunable, epoch=epoch):
            return
        pauses = self._context.pauses
        # An epoch is compared as a whole: most programs write a checkpoint at each one's end.
        by_epoch = self._tunable.terms.granularity == "epoch"
        pause = pauses.reason() if by_epoch else pauses.at_boundary()
        reason = self._member.stop_reason()
        if pause:
            reason = self._pause(pause) or reason
        if reason:
            self.close(reason)
        elif not pause:
            self._next_launch()

    def close(self, reason: str) -> None:
        """End the trial, without a decision unless there is one; the present launch is charged, not compared."""
        self._end_launch()
        self._end(self._pooled.abandon(reason))

    def forked(self) -> None:
        """Put the kept value in force in a forked child."""
        self._tunable.set_for_trial(self._work.old)

    def _next_launch(self) -> None:
        self._paused_since_ns = None
        self._end_launch()
        launches, device = self._followed.times()
        self._pooled.pool([Report(trial=self._work.trial, launches=launches, device=device)], has_run=True)
        ended = self._pooled.ended()
        if ended is None:
            self._begin_launch()
        else:
            self._end(ended)

    def _pause(self, reason: str) -> str:
        """Put the old value in force until the next launch; the step that has just ended is not compared.

        Returns:
            The reason to end the trial if it has been paused for too long; empty otherwise.
        """
        now_ns = self._context.clock()
        if self._paused_since_ns is None:
            self._paused_since_ns = now_ns
            self._followed.pause()
            self._pooled.skip()
        overdue = now_ns - self._paused_since_ns >= LONGEST_PAUSE_NS
        return f"it was paused for {LONGEST_PAUSE_NS // 10**9} s: {reason}; {LATER}" if overdue else ""

    def _begin_launch(self) -> None:
        self._followed.follow(self._pooled.plan(1))
        self._followed.begin_launch()

    def _end_launch(self) -> None:
        self._followed.end_launch()
        if self._followed.survived:
            self._member.survived()

    def _end(self, ended: Ended) -> None:
        self.reason = ""
        self._followed.close(ended.value if ended.decision == Decision.KEPT.value else self._work.old)
        self._member.trial_finished(self._tunable, ended, self._work.old)
