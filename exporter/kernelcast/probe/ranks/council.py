"""Meetings of the ranks of a group, at which they change their collective tunables together.

A meeting is one exchange of texts, held at the end of a step that all ranks know two meetings ahead. No other step
communicates. The first rank decides: it gets the reports of all ranks in one meeting, and gives its decision in the
next. So all ranks change at the same step, a rank that misses a message has everything again with the next one, and
no two ranks can come to different decisions.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from time import perf_counter_ns
from typing import Any, Final, Protocol

from kernelcast.probe.conditions.checks import HintContext
from kernelcast.probe.ranks.cadence import Cadence
from kernelcast.probe.ranks.followed import FollowedTrial
from kernelcast.probe.ranks.group import RankGroup, group_from
from kernelcast.probe.ranks.leading import APPLIED, Leader
from kernelcast.probe.ranks.messages import (
    Ended,
    Message,
    Offer,
    Report,
    State,
    Work,
    decode,
    encode,
)
from kernelcast.probe.ranks.searched import SearchMember
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.tunables import AnyTunable
from kernelcast.probe.tuned.collective import CollectiveSpace
from kernelcast.tuning.experiment import Decision
from kernelcast.tuning.journal import KeptConfiguration
from kernelcast.wire.identity import new_nonce

# Meetings missed in a row after which an open trial ends here.
MAX_MISSED: Final = 2
# Hints of one message; the others wait.
MAX_OFFERS: Final = 16
# Ended trials whose ids are kept, because messages repeat the last ends.
MAX_ENDED: Final = 16
# Message of a rank that registers a collective tunable and runs no probe.
ABSENT: Final = "absent"


class CouncilMember(Protocol):
    """The process, as its council and its own trials see it; `HintReceiver` in a probe."""

    def offers(self, tunables: Iterable[str]) -> Sequence[Offer]:
        """Return the hints that wait for these tunables and fit them."""

    def stop_reason(self, announced: str = "") -> str:
        """Return the reason for which no trial may go on, nor the announced one begin; empty if there is none."""

    def search_wait_reason(self) -> str:
        """Return the reason for which a search must wait though nothing stops it; empty if it may go on."""

    def busy(self, besides: object = None) -> bool:
        """Whether another trial is open here than one of this council."""

    def trial_began(self, work: Work) -> None:
        """Note that a trial of all ranks begins."""

    def survived(self) -> None:
        """Note that the value on trial has run a few launches."""

    def trial_finished(self, tunable: AnyTunable, ended: Ended, old: str) -> None:
        """Note the end of a trial or search; its value is set already."""


def stay_away(group: object) -> None:
    """Take part in the exchange at which the other ranks register a tunable, on a rank without a probe.

    `kernelcast.probe.tunable` and `space` call it; without it the other ranks would wait for ever.

    Raises:
        TunableError: The group cannot be used.
    """
    if group is not None:
        with contextlib.suppress(Exception):  # the ranks that run a probe get the same error, and go on
            group_from(group).exchange(ABSENT)


class Council:
    """One rank's side of the meetings. `HintReceiver.at_boundary` calls it, on the program's thread.

    At a meeting each rank sends a `Report`, and the state that it would decide; all ranks adopt the state of the first.

    Args:
        group: Exchanges texts.
        member: The process.
        recorder: Measures the kernels.
        context: Rules of trials, and the clock of steps.
        searches: This rank's part in searches.
        by_epoch: Whether the tunables change at epochs only.

    Attributes:
        absent: Why the ranks do not meet: one of them runs no probe; empty if they do.
        meetings: Meetings held.
        missed: Meetings that ended in an error.
        failures: Errors of this module, after each of which the rank has met without a proposal.
    """

    def __init__(
        self,
        group: RankGroup,
        member: CouncilMember,
        recorder: Recorder,
        context: HintContext,
        searches: SearchMember,
        *,
        by_epoch: bool = False,
    ) -> None:
        self.by_epoch = by_epoch
        self.absent = ""
        self.meetings = self.missed = self.failures = 0
        self._group = group
        self._member = member
        self._recorder = recorder
        self._clock = context.step_clock or perf_counter_ns
        self._sender = new_nonce()
        self._tunables: dict[str, AnyTunable] = {}
        self._cadence = Cadence(self._clock)
        self._leader = Leader(recorder, context)
        self._searches = searches
        # Whether this rank is the first one. Until the first meeting each rank takes itself for it, so that the first
        # message of every rank has a state; all adopt that of the first rank.
        self._leads = True
        self._state = State()
        self._trial: FollowedTrial | None = None
        self._ended_trials: deque[str] = deque(maxlen=MAX_ENDED)
        self._missed_in_a_row = 0

    @property
    def reason(self) -> str:
        """The reason for which this process may begin nothing of its own; empty if it may."""
        return "a value is being tried on all ranks" if self._trial is not None or self._state.wanted else ""

    @property
    def open(self) -> bool:
        """Whether a trial of all ranks is open, or begins at the next meeting."""
        return self._trial is not None or self._leader.open

    def join(self, tunable: AnyTunable) -> None:
        """Add a tunable and meet at once, so that all ranks begin with the value of the first one.

        All ranks do this in the same order. If one of them runs no probe, they do not meet again.
        """
        self._tunables[tunable.name] = tunable
        if ABSENT in self._meet():
            self.absent = "one of its ranks runs no probe, so they cannot change it together"

    def search(self, space: CollectiveSpace) -> None:
        """Let the ranks search a space, whose tunable has joined."""
        tunable = self._tunables[space.name]
        self._searches.add(space, tunable)
        self._leader.search(space)

    def recheck(self, tunable: AnyTunable, start: str, last: KeptConfiguration | None) -> None:
        """Compare the value that an earlier run has kept with the program's own; `last`: see `Recheck.of`."""
        self._leader.recheck(CollectiveSpace(tunable.name, start), last)

    def step_ended(self, items: float, *, epoch: bool) -> None:
        """Handle the end of a step."""
        if self.absent:
            return
        trial = self._trial
        if trial is not None:
            trial.step_ended(items)
        if self.by_epoch and not epoch:
            return
        if trial is not None:
            self._guarded(lambda: self._end_launch(trial), None)
        if self._cadence.due():
            self._meet()
        if self._trial is not None:
            self._guarded(self._trial.begin_launch, None)

    def close(self, reason: str) -> None:
        """End an open trial, because the process ends or leaves."""
        if self._trial is not None:
            self._end_locally(reason)

    def forked(self) -> None:
        """Put the kept value in force in a forked child, which is no rank."""
        trial, self._trial = self._trial, None
        if trial is not None:
            trial.tunable.set_for_trial(trial.tunable.kept)

    def _end_launch(self, trial: FollowedTrial) -> None:
        trial.end_launch()
        if trial.survived and not trial.is_exploring:
            self._member.survived()

    def _meet(self) -> Sequence[str]:
        """Exchange messages; returns those of all ranks."""
        text = self._guarded(self._compose, "")
        began_ns = self._clock()
        try:
            texts = self._group.exchange(text)
        except Exception as error:  # noqa: BLE001  the program's own code failed; it must not fail twice
            self._meeting_failed(error)
            return ()
        self._cadence.exchanged(self._clock() - began_ns)
        self.meetings += 1
        self._missed_in_a_row = 0
        messages = self._guarded(lambda: [decode(one) for one in texts], [None])
        self._guarded(lambda: self._adopt(messages), None)
        return texts

    def _compose(self) -> str:
        launches, device = self._trial.times() if self._trial is not None else ((), ())
        report = Report(
            tuple(self._member.offers(self._tunables))[:MAX_OFFERS],
            self._member.stop_reason(self._state.wanted),
            self._member.busy(self),
            self._trial.trial if self._trial is not None else "",
            launches,
            device,
            self._member.search_wait_reason(),
            self._searches.bans(self._tunables),
        )
        state = State()
        if self._leads:
            pause = self._cadence.announced
            next_pause = self._cadence.choose(active=self._leader.active)
            state = replace(self._leader.state(self._tunables, pause), pause=pause, next_pause=next_pause)
        return encode(Message(self._sender, report, state))

    def _adopt(self, messages: Sequence[Message | None]) -> None:
        first = messages[0] if messages else None
        self._leads = first is not None and first.sender == self._sender
        if first is None:
            self._cadence.go_on()
            self._run_kept_value()
            return
        state = self._state = first.state
        self._cadence.set(state.pause, state.next_pause)
        # The order matters: ends put the kept values of their trials, and a new trial starts from these.
        for one in state.ended:
            self._end(one)
        if self._trial is not None and (state.work is None or state.work.trial != self._trial.trial):
            self._end_locally("this rank missed the meeting at which the ranks ended it")
        self._keep(state)
        if state.work is not None:
            self._follow(state.work)
        # One rank's reason to stop is enough. The first rank ends the trial with the next state.
        stops = [one.report.stop for one in messages if one is not None and one.report.stop]
        if stops:
            self._run_kept_value()
        if self._leads:
            self._leader.decide(self._tunables, [one.report if one else None for one in messages])

    def _follow(self, work: Work) -> None:
        tunable = self._tunables.get(work.tunable)
        if tunable is None:
            return
        if self._trial is None:
            self._trial = FollowedTrial(work, tunable, self._recorder, self._recorder.budget, self._clock)
            if work.is_search:
                self._searches.search_began(work)
            elif work.trial not in self._ended_trials:
                self._member.trial_began(work)
        if work.is_search:
            self._searches.follow(work)
        self._trial.follow(work)

    def _keep(self, state: State) -> None:
        for name, value in state.kept.items():
            tunable = self._tunables.get(name)
            if tunable is not None and value in tunable.allowed and tunable.kept != value:
                tunable.put(value)

    def _end(self, ended: Ended) -> None:
        """End a trial that the ranks have ended; a trial that ended before changes nothing."""
        tunable = self._tunables.get(ended.tunable)
        if tunable is None:
            return
        old = tunable.kept
        if self._trial is not None and self._trial.trial == ended.trial:
            self._trial.close(ended.value if ended.decision in (Decision.KEPT.value, APPLIED) else old)
            self._trial = None
        if ended.trial in self._ended_trials:
            return
        self._ended_trials.append(ended.trial)
        self._member.trial_finished(tunable, ended, old)

    def _end_locally(self, reason: str) -> None:
        """End the open trial on this rank, with the kept value."""
        trial, self._trial = self._trial, None
        if trial is None:
            return
        old = trial.tunable.kept
        trial.close(old)
        if trial.is_exploring:
            return  # a search goes on later
        if trial.trial not in self._ended_trials:
            self._ended_trials.append(trial.trial)
            decision, name = Decision.INCONCLUSIVE.value, trial.tunable.name
            ended = Ended(trial.trial, name, trial.value, decision, reason, outside=True)
            self._member.trial_finished(trial.tunable, ended, old)

    def _run_kept_value(self) -> None:
        if self._trial is not None:
            self._trial.drop_plan()

    def _meeting_failed(self, error: Exception) -> None:
        """Go on without the meeting: the kept value is in force until the next one."""
        self.missed += 1
        self._missed_in_a_row += 1
        self._cadence.go_on()
        self._run_kept_value()
        if self._missed_in_a_row >= MAX_MISSED:
            reason = f"its ranks could not agree: {error!r}"
            self._leader.abandon(reason)
            self._end_locally(reason)

    def _guarded(self, work: Callable[[], Any], otherwise: Any) -> Any:
        """Run our own code, which must not keep this rank from the meeting."""
        try:
            return work()
        except Exception:  # noqa: BLE001  an error means no proposal
            self.failures += 1
            return otherwise
