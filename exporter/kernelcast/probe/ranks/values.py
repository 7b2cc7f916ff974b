"""Meetings by a function that passes values only: the `agree` of a collective tunable.

The ranks meet at each epoch, or at steps that depend on nothing but their number, and call the function twice each
time: so no rank can miss a meeting by not knowing of it. The order in which a trial runs the values depends on the
value and on the number of the boundary, so all ranks run the same. Each rank judges its own times and proposes its
decision; the one that the ranks agree on holds for all.
"""

import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from kernelcast.probe.conditions.checks import HintContext
from kernelcast.probe.conditions.pauses import CheckpointWatch
from kernelcast.probe.ranks.council import CouncilMember
from kernelcast.probe.ranks.group import repeated
from kernelcast.probe.ranks.leading import APPLIED
from kernelcast.probe.ranks.messages import Ended, Offer, Work
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.trial import SURVIVED_STEPS, LaunchMeasurement
from kernelcast.probe.trial_budget import LaunchCost
from kernelcast.probe.tunables import Agreement, AnyTunable, text
from kernelcast.tuning.experiment import Arm, Decision, Experiment, Launch
from kernelcast.tuning.experiment.schedule import LaunchSchedule
from kernelcast.wire.events import HintMode

# Boundaries between two meetings, after the first ones.
PAUSE: Final = 64
# Meetings at which the ranks repeat a decision, for a rank that has missed it.
REPEAT_MEETINGS: Final = 3
# Meetings in a row that fail before an open trial ends here.
MAX_MISSED: Final = 2
# Meetings after the last launch of a trial, in which ranks whose times disagree may come to one decision.
PATIENCE_MEETINGS: Final = 3
MISSED: Final = "a rank had missed the beginning"

Answer = TypeVar("Answer")


class ValueTrial:
    """A trial whose order all ranks know. Step time decides.

    Args:
        work: The trial.
        tunable: Its tunable.
        recorder: Measures the kernels.
        context: Rules and clock.
        seed: Of the order; the same on all ranks.

    Attributes:
        survived: Whether the last boundary completed the first few launches of the value.
    """

    def __init__(self, work: Work, tunable: AnyTunable, recorder: Recorder, context: HintContext, seed: int) -> None:
        self.work = work
        self._tunable = tunable
        rules = tunable.terms.rules(context.rules)
        # The order of the launches: some of both values, then a *race* of the new value alone, then blocks that
        # compare the two. It goes on after this rank has its verdict, because the other ranks may not have theirs.
        self._schedule = LaunchSchedule(seed, rules)
        self._experiment = Experiment(seed=seed, rules=rules)
        self._measured = LaunchMeasurement(recorder, tunable.terms.kernels, context.step_clock)
        self._candidate_launches = self._meetings_after = 0
        self._launch: Launch | None = None
        self._recorder = recorder
        self._checkpoints = CheckpointWatch()
        self._cost = LaunchCost()
        self.survived = self._may_compare = False

    def step_ended(self, items: float) -> None:
        """Add the step that has just ended to the present launch."""
        self._measured.step_ended(items)

    def end_launch(self) -> None:
        """Record the launch that ends at this boundary."""
        self.survived = False
        launch = self._launch
        if launch is None:
            return
        seconds, items = self._measured.end()
        for step in self._measured.device_times():
            self._experiment.record_second(Arm(step.arm), step.seconds, step.items, step.number)
        if self._checkpoints.in_step() and self._tunable.terms.granularity != "epoch":
            self._experiment.unrecorded_before(launch.number + 1)
        else:
            self._experiment.record(launch.arm, seconds, items, launch.number)
            self._cost.launch(seconds, candidate=launch.arm is Arm.CANDIDATE)
            self._cost.book(self._recorder.budget)
        if launch.arm is Arm.CANDIDATE:
            self._candidate_launches += 1
            self.survived = self._candidate_launches == SURVIVED_STEPS

    def meeting_held(self) -> None:
        """Note a meeting.

        After the race, the comparison begins only once the ranks have met: a meeting that ends the trial of a slow
        value comes first. Until then the kept value runs.
        """
        self._meetings_after += self._schedule.exhausted
        self._may_compare = self._may_compare or self._schedule.at_block_boundary

    def begin_launch(self) -> None:
        """Begin the next launch of the order."""
        schedule = self._schedule
        waits = schedule.exhausted or (schedule.at_block_boundary and not self._may_compare)
        self._launch = schedule.idle() if waits else schedule.next()
        self._experiment.expect(self._launch)
        value = self.work.value if self._launch.arm is Arm.CANDIDATE else self.work.old
        self._tunable.set_for_trial(value)
        self._measured.begin(self._launch.number, self._launch.arm)

    def proposal(self) -> str | None:
        """Return the value that this rank's times speak for; None while it has no verdict."""
        if self._schedule.exhausted:
            self._experiment.end_of_records()
        verdict = self._experiment.verdict()
        if verdict is None:
            return None
        agrees = verdict.decision is Decision.KEPT and self._meetings_after <= PATIENCE_MEETINGS
        return self.work.value if agrees else self.work.old

    @property
    def decision(self) -> Decision:
        """The decision of this rank's times, if the ranks have not kept the value."""
        verdict = self._experiment.verdict()
        own = verdict.decision if verdict is not None else Decision.INCONCLUSIVE
        return Decision.INCONCLUSIVE if own is Decision.KEPT else own

    def close(self, decision: Decision, reason: str, *, outside: bool) -> Ended:
        """End with the decision of all ranks; the figures are those of this rank."""
        self._measured.close()
        self._experiment.abandon(reason)
        work, verdict = self.work, self._experiment.verdict()
        own = verdict is not None and verdict.decision is decision
        figures = verdict if verdict is not None and verdict.blocks else None
        return Ended(
            work.trial,
            work.tunable,
            work.value,
            decision.value,
            verdict.reason if own and verdict is not None else reason,
            figures.ratio if figures else None,
            figures.interval if figures else None,
            figures.ratio if figures else None,
            figures.second_ratio if figures else None,
            figures.blocks if figures else 0,
            self._candidate_launches,
            outside,
        )


class ValueCouncil:
    """One rank's side of the meetings about one tunable. For the program's thread.

    Args:
        tunable: The tunable.
        agree: Lets the ranks agree on a value.
        member: The process.
        recorder: Measures the kernels.
        context: Rules and clock.
        proposed: A value to begin with, kept in an earlier run.
    """

    def __init__(
        self,
        tunable: AnyTunable,
        agree: Agreement,
        member: CouncilMember,
        recorder: Recorder,
        context: HintContext,
        *,
        proposed: str | None = None,
    ) -> None:
        self._tunable = tunable
        self._by_epoch = tunable.terms.granularity == "epoch"
        self._agree = agree
        self._member = member
        self._recorder = recorder
        self._context = context
        self._repeated_value = proposed or tunable.kept
        self._repeats_left = REPEAT_MEETINGS if proposed is not None else 0
        self._offer: Offer | None = None
        self._stopped = ""
        self._errors: list[Exception] = []
        self._boundaries = 0
        self._missed_in_a_row = 0
        self._trial: ValueTrial | None = None
        self.failures = 0

    @property
    def open(self) -> bool:
        """Whether a trial of all ranks is open."""
        return self._trial is not None

    @property
    def reason(self) -> str:
        """The reason for which this process may begin nothing of its own; empty if it may."""
        return "a value is being tried on all ranks" if self._trial is not None else ""

    def step_ended(self, items: float, *, epoch: bool) -> None:
        """Handle the end of a step."""
        if self._trial is not None:
            self._trial.step_ended(items)
        if self._by_epoch and not epoch:
            return
        self._boundaries += 1
        self._guarded(self._end_launch, None)
        if self._by_epoch or is_meeting(self._boundaries):
            self._meet()
        if self._trial is not None:
            self._guarded(self._trial.begin_launch, None)

    def close(self, reason: str) -> None:
        """End an open trial, because the process ends or leaves."""
        self._end(Decision.INCONCLUSIVE, reason, outside=True)

    def forked(self) -> None:
        """Put the kept value in force in a forked child, which is no rank."""
        self._trial = None
        self._tunable.set_for_trial(self._tunable.kept)

    def _end_launch(self) -> None:
        if self._trial is not None:
            self._trial.end_launch()
            if self._trial.survived:
                self._member.survived(self._tunable, self._trial.work.value)

    def _meet(self) -> None:
        """Agree on a value, then on whether it is in force at once: always two calls, whatever this rank knows."""
        # Example: two ranks, kept value a, a hint for b has come to rank 0 only.
        #   Rank 0 calls agree(b), rank 1 agree(None): both get b, and begin the same trial of b.
        #   At the second call both pass None ("not at once"), so it is tried; a hint of mode `apply` would pass b.
        #   At the end each passes its own result, b or a, twice; the value that they agree on holds.
        if self._trial is not None:
            self._trial.meeting_held()
        self._offer = None
        nothing: tuple[str | None, bool] = (None, False)
        value, at_once = self._guarded(self._proposal, nothing)
        self._errors.clear()
        agreed = self._agree_on(value)
        immediately = self._agree_on(value if at_once else None) is not None
        if self._errors:
            self._missed_in_a_row += 1
            if self._missed_in_a_row >= MAX_MISSED:
                reason = f"its ranks could not agree: {self._errors[-1]!r}"
                self._guarded(lambda: self._end(Decision.INCONCLUSIVE, reason, outside=True), None)
            return
        self._missed_in_a_row = 0
        if agreed is not None:
            self._guarded(lambda: self._apply_agreed(text(agreed), immediately=immediately), None)

    def _agree_on(self, value: str | None) -> str | None:
        """Call the program's function; where it fails at once, this rank takes part without a proposal."""
        proposals = iter((value,))
        try:
            agreed: str | None = repeated(lambda: self._agree(next(proposals, None)))
        except Exception as error:  # noqa: BLE001  the program's own code failed; it must not fail twice
            self._errors.append(error)
            return None
        return agreed

    def _proposal(self) -> tuple[str | None, bool]:
        """Return the value that this rank proposes, and whether it is to be in force at once."""
        stop = self._member.stop_reason()
        if self._trial is not None:
            self._find_hint(self._trial)
            self._stopped = self._stopped or stop
            return (self._trial.work.old if stop else self._trial.proposal()), True
        offers = () if stop else self._member.offers((self._tunable.name,))
        self._offer = offers[0] if offers and not self._member.busy(self) else None
        if self._offer is not None:
            return self._offer.value, self._offer.mode == HintMode.APPLY.value
        if self._repeats_left:
            self._repeats_left -= 1
            return self._repeated_value, True
        return None, False

    def _apply_agreed(self, value: str, *, immediately: bool) -> None:
        """Carry out the ranks' agreement."""
        tunable, offer = self._tunable, self._offer
        if value not in tunable.allowed:
            return
        open_trial = self._trial
        if open_trial is not None and immediately:
            if value == open_trial.work.value:
                self._end(Decision.KEPT, "the ranks agreed to keep it")
            else:
                reason = self._stopped or "the ranks agreed on the kept value"
                self._end(open_trial.decision, reason, outside=bool(self._stopped))
            return
        if open_trial is not None:
            # Ranks in a trial pass a decision, which holds at once. So this is a value to be tried, from a rank that
            # has missed the beginning of the trial: all ranks begin, or begin again.
            if value == open_trial.work.value:
                open_trial.close(Decision.INCONCLUSIVE, MISSED, outside=True)
                self._begin(open_trial.work)
                return
            self._end(Decision.INCONCLUSIVE, MISSED, outside=True)
        if value != tunable.kept:
            trial = offer.hint_id if offer is not None and offer.value == value else ""
            if immediately:
                old = tunable.kept
                self._put_kept(value)
                self._member.trial_finished(tunable, Ended(trial, tunable.name, value, APPLIED, "on all ranks"), old)
                return
            work = Work(trial, tunable.name, value, tunable.kept)
            self._begin(work)
            self._member.trial_began(work)

    def _begin(self, work: Work) -> None:
        """Begin a trial at this boundary, on all ranks in the same order."""
        seed = zlib.crc32(f"{work.tunable}|{work.value}|{work.old}|{self._boundaries}".encode())
        self._stopped = ""
        self._trial = ValueTrial(work, self._tunable, self._recorder, self._context, seed)

    def _end(self, decision: Decision, reason: str, *, outside: bool = False) -> None:
        trial, self._trial = self._trial, None
        if trial is None:
            return
        old = trial.work.old
        self._find_hint(trial)
        ended = trial.close(decision, reason, outside=outside)
        self._put_kept(trial.work.value if decision is Decision.KEPT else old)
        self._member.trial_finished(self._tunable, ended, old)

    def _find_hint(self, trial: ValueTrial) -> None:
        """Find the hint of a trial: it may have come here after the ranks had agreed on its value."""
        if not trial.work.trial:
            for offer in self._member.offers((self._tunable.name,)):
                if offer.value == trial.work.value:
                    trial.work = replace(trial.work, trial=offer.hint_id)
                    self._member.trial_began(trial.work)

    def _put_kept(self, value: str) -> None:
        self._tunable.put(value)
        self._repeated_value, self._repeats_left = value, REPEAT_MEETINGS

    def _guarded(self, work: Callable[[], Answer], otherwise: Answer) -> Answer:
        """Run our own code, which must not keep this rank from a meeting."""
        try:
            return work()
        except Exception:  # noqa: BLE001  an error means no proposal
            self.failures += 1
            return otherwise


def is_meeting(boundary: int) -> bool:
    """Whether the ranks meet at a boundary: at each power of two up to 64, then at each multiple of 64."""
    return boundary % PAUSE == 0 or (boundary < PAUSE and boundary & (boundary - 1) == 0)
