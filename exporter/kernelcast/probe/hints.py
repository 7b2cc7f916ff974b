"""Hints inside the program: accepts or rejects them, and applies them at step boundaries.

`ReportSender` passes events of the exporter to `receive`, on the probe's thread. `Probe.step` calls `at_boundary`, on
the program's thread, and only that changes a value, so the program never sees one change in the middle of a step.
Results go to the `OutcomeQueue`.

Words: a *trial* compares a new value with the kept one over some steps. A *boundary* is the end of a step (or epoch) at
which a value may change. A *search* tries configurations of a space. A *council* is a meeting of all ranks of a job.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from kernelcast.probe.conditions.checks import OFF, SWITCH, HintChecks, HintContext, at_its_boundary, stale
from kernelcast.probe.outcomes import OutcomeQueue
from kernelcast.probe.ranks.alone import LocalTrial
from kernelcast.probe.ranks.councils import Councils
from kernelcast.probe.ranks.leading import APPLIED
from kernelcast.probe.ranks.messages import Ended, Offer, Work, is_search, report_end
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.tunables import AnyTunable, TunableSet
from kernelcast.probe.tuned.approved import SearchApprovals
from kernelcast.probe.tuned.kept_values import KeptValues
from kernelcast.probe.tuned.notes import CandidateNotes
from kernelcast.probe.tuned.steps import Driver, FirstStep
from kernelcast.tuning.experiment import Decision
from kernelcast.wire.errors import EventError
from kernelcast.wire.events import Hint, HintMode, OutcomeState, hint_from, withdrawn_key
from kernelcast.wire.recent_ids import RecentIds
from kernelcast.wire.tuning.approvals import APPROVAL_TYPE, approval_from
from kernelcast.wire.tuning.experience import EXPERIENCE_TYPE, Experience, experience_from
from kernelcast.wire.tuning.pauses import LATER

__all__ = ["OFF", "SWITCH", "HintContext", "HintReceiver"]

# Ids of received hints that are remembered, so that one which is sent again after a reconnect is ignored.
MAX_SEEN: Final = 4096
NOT_WAITING: Final = "its hint was withdrawn, replaced or has expired on one of the ranks"


class HintReceiver:
    """Receives hints, rejects those that do not match, and applies the others.

    `receive`, `withdraw` and `stop` run on the probe's thread, everything else on the program's; a lock protects the
    shared state. One trial is open at a time, because two would disturb each other's times; further hints wait.
    Hints for collective tunables wait for the meetings of their ranks: the methods of `CouncilMember`.
    """

    def __init__(self, tunables: TunableSet, recorder: Recorder, outcomes: OutcomeQueue, context: HintContext) -> None:
        self._tunables = tunables
        self._recorder = recorder
        self._outcomes = outcomes
        self._context = context
        self._checks = HintChecks(context)
        self._notes = CandidateNotes(context.journal, context.code_version)
        self._lock = threading.Lock()
        self._seen = RecentIds(MAX_SEEN)
        # Accepted hints by tunable, until they take effect, expire or are withdrawn. A younger one replaces an older.
        self._waiting: dict[str, Hint] = {}
        # The open trial of a tunable of this process alone.
        self._trial: LocalTrial | None = None
        self._collective_hint: Hint | None = None
        """The hint that is being tried on all ranks."""
        # Why no trial may begin (`stop`), and why the open one ends at its next boundary; empty without a reason.
        self._stop_reason = self._end_reason = ""
        self._switched_off = self._checks.switched_off()
        self.councils = Councils(self, recorder, context, outcomes)
        """Meetings about collective tunables and spaces."""
        self._searches: tuple[Driver, ...] = ()
        # Those that have not run yet.
        self._first_steps: list[FirstStep] = []
        self.kept_values = KeptValues(recorder.progress, context, outcomes)
        self.learned: Callable[[Experience], None] = lambda _experience: None
        """Receives results of searches on other nodes; the probe sets it."""
        self.approvals = SearchApprovals(context, outcomes)
        self.malformed = 0
        """Number of events that were not valid hints."""

    def receive(self, event: dict[str, Any]) -> None:
        """Accept a hint, or reject it with a reason; a hint that was received before is ignored."""
        key = withdrawn_key(event)
        if key is not None:
            self.withdraw(key)
            return
        try:
            if event.get("type") == EXPERIENCE_TYPE:
                self.learned(experience_from(event))
                return
            if event.get("type") == APPROVAL_TYPE:
                self.approvals.add(approval_from(event))
                return
            hint = hint_from(event)
        except EventError:
            self.malformed += 1
            return
        with self._lock:
            if not self._seen.add(hint.hint_id):
                return
            self._outcomes.add(hint, OutcomeState.RECEIVED, "")
            self._accept(hint)

    def withdraw(self, key: str) -> None:
        """Drop the hint with a key; a trial of it ends with the old value at its next boundary."""
        with self._lock:
            for name, hint in list(self._waiting.items()):
                if hint.key == key:
                    del self._waiting[name]
                    reason = self._context.stop_file.reason(now=True) or "it was withdrawn"
                    self._refuse(hint, reason, OutcomeState.REJECTED)
            tried = self._trial.hint if self._trial is not None else self._collective_hint
            if tried is not None and tried.key == key:
                self._end_reason = "its hint was withdrawn"

    def trial_prevented(self, besides: Driver | None = None) -> str:
        """Return the reason for which nothing may be tried now; empty if it may. Cheap enough for every call.

        Args:
            besides: The search that asks: its own candidate is no reason.
        """
        if self._trial is not None:
            return "a hint is being tried"
        for driver in self._drivers:
            if driver is not besides and driver.reason:
                return driver.reason
        if self._waiting and besides is not None and self._hint_for_this_process_waits():
            return "a hint waits"
        context, reason = self._context, self._stop_reason or self._switched_off
        return reason or context.stop_file.reason() or context.pauses.spaces()

    @property
    def _drivers(self) -> tuple[Driver, ...]:
        """What tries values at boundaries, besides the trial of this process alone."""
        return (*self.councils.all, *self._searches)

    def close(self) -> None:
        """End an open trial without a decision, because the program ends."""
        running, self._trial = self._trial, None
        if running is not None:
            self._close(running, running.end("the program ended"))
        for driver in self._drivers:
            driver.close("the program ended")
        self.councils.searches.close("the program ended")

    def forked(self) -> None:
        """Put the kept values in force in a forked child: no step there ends what its parent was trying at the fork."""
        self._lock = threading.Lock()  # a thread of the parent may hold the other one
        running, self._trial = self._trial, None
        if running is not None:
            running.tunable.set_for_trial(running.old)
        for driver in self._drivers:
            driver.forked()

    def stop(self, reason: str) -> None:
        """Prevent trials from now on, and end an open one with the old value; an empty reason allows trials again."""
        if reason == self._stop_reason:
            return
        with self._lock:
            self._stop_reason = reason
            if reason and self._trial is not None:
                self._end_reason = reason

    def at_boundary(self, *, epoch: bool, items: float = 1.0) -> None:
        """Handle the end of a step of `items` units of work; `epoch`: an epoch has ended as well."""
        for council in self.councils.all:
            council.step_ended(items, epoch=epoch)
        # Three comparisons and no lock in a step without a hint, trial or check.
        if (
            self._waiting
            or self._trial
            or (not self.kept_values.is_empty and self.kept_values.is_check_due(epoch=epoch))
        ):
            self._local_boundary(items, epoch=epoch)
        for search in self._searches:
            search.step_ended(items, epoch=epoch)
        if self._first_steps:
            for first in list(self._first_steps):
                first.step_ended(items, epoch=epoch)
                if first.has_run:
                    self._first_steps.remove(first)

    def _local_boundary(self, items: float, *, epoch: bool) -> None:
        with self._lock:
            if self._trial is not None:
                self._continue_trial(self._trial, epoch=epoch, items=items)
            for name, hint in list(self._waiting.items()):
                waiter = self._tunables.get(name)
                if waiter and waiter.terms.scope == "local" and at_its_boundary(waiter, epoch=epoch):
                    self._apply(hint, waiter)
            for value in self.kept_values.due:
                if at_its_boundary(value.tunable, epoch=epoch) and self._may_try() and not self.stopped():
                    self.kept_values.check_begins(value)
                    self._begin(None, value.tunable, value.start)

    def drive(self, search: Driver) -> None:
        """Call a search at each step from now on, a `FirstStep` until it has run."""
        if isinstance(search, FirstStep):
            self._first_steps.append(search)
            return
        self._searches = (*self._searches, search)

    def watch(self, tunable: AnyTunable, restored: str | None = None) -> None:
        """Register a collective tunable: from now on its ranks meet.

        Args:
            tunable: The tunable.
            restored: The value that this node kept in an earlier run of the program.
        """
        self.councils.watch(tunable, restored)

    def stopped(self) -> str:
        """Return the reason for which nothing may be tried; empty if it may."""
        return self._checks.switched_off() or self._stop_reason or self._context.stop_file.reason(now=True)

    def offers(self, tunables: Iterable[str]) -> Sequence[Offer]:
        """Return the hints that wait for collective tunables; those that have become void are refused."""
        with self._lock:
            hints = [hint for name in tunables if (hint := self._waiting.get(name)) and self._still_fits(hint)]
        if self._context.pauses.reason() or self._context.budget.exhausted:
            return ()
        return [Offer(hint.hint_id, hint.tunable, hint.value, hint.mode.value) for hint in hints]

    def stop_reason(self, announced: str = "") -> str:
        """Return the reason for which a trial on all ranks must end or may not begin; empty if there is none.

        Args:
            announced: Id of the hint or search that the ranks are about to begin.
        """
        with self._lock:
            order = self._context.stop_file.reason(now=self._collective_hint is not None)
            reason = order or self._end_reason or self.stopped() or self._pause_of_all()
            waits = (
                not announced or is_search(announced) or announced in {one.hint_id for one in self._waiting.values()}
            )
            return reason or ("" if waits else NOT_WAITING)

    def _pause_of_all(self) -> str:
        """A pause ends a trial on all ranks, because ranks notice it at different steps."""
        pause = self._context.pauses.reason() if self._collective_hint is not None else ""
        return f"{pause}; {LATER}" if pause else ""

    def busy(self, besides: object = None) -> bool:
        """Whether a trial is open here that is not one of a council."""
        alone = self._trial is not None or any(search.reason for search in self._searches)
        return alone or self.councils.open_besides(besides)

    def search_wait_reason(self) -> str:
        """Return the reason for which a search on all ranks must wait; empty if it may go on."""
        context, waits = self._context, self._waiting and self._hint_for_this_process_waits()
        reason = self.stop_reason() or context.pauses.spaces() or ("a hint waits" if waits else "")
        return reason or ("the budget for trials is spent" if context.budget.exhausted else "")

    def trial_began(self, work: Work) -> None:
        """Note that a trial on all ranks begins."""
        with self._lock:
            self._end_reason = ""
            self._notes.begin(work.tunable, work.value)
            hint = self._waiting.get(work.tunable)
            if hint is None or hint.hint_id != work.trial:
                self._end_reason = NOT_WAITING
                return
            self._collective_hint = self._waiting.pop(work.tunable)
        reason = f"tried on all ranks in turn with {work.old}, for at most {self._context.rules.maximum_new} steps"
        self._outcomes.add(hint, OutcomeState.APPLIED, reason, value=work.value, previous=work.old)

    def survived(self) -> None:
        """Note that the value on trial has run a few launches, so it does not end the process."""
        self._notes.no_harm()

    def trial_finished(self, tunable: AnyTunable, ended: Ended, old: str) -> None:
        """Report the end of a trial on all ranks, and remember it."""
        with self._lock:
            hint, self._end_reason = self._collective_hint, ""
            if hint is not None and hint.hint_id == ended.trial:
                self._collective_hint = None
            elif (waiting := self._waiting.get(tunable.name)) is not None and waiting.hint_id == ended.trial:
                hint = self._waiting.pop(tunable.name)
                if ended.decision != APPLIED:  # this rank has missed its beginning
                    self._outcomes.add(
                        hint, OutcomeState.APPLIED, "tried on all ranks", value=ended.value, previous=old
                    )
            else:
                hint = None
        if ended.decision == APPLIED:
            if hint is not None:
                self._outcomes.add(hint, OutcomeState.APPLIED, ended.reason, value=tunable.kept, previous=old)
            return
        self._finish(hint, tunable, ended, old)

    def _hint_for_this_process_waits(self) -> bool:
        tunables = map(self._tunables.get, list(self._waiting))
        return any(one.terms.scope == "local" for one in tunables if one)

    def _still_fits(self, hint: Hint) -> bool:
        tunable = self._tunables.get(hint.tunable)
        if tunable is None:
            return False
        if self._checks.expired(hint):
            del self._waiting[hint.tunable]
            self._refuse(hint, "it expired before all ranks had it and could try it", OutcomeState.EXPIRED)
            return False
        if reason := stale(hint, tunable) or self._checks.banned(hint):
            del self._waiting[hint.tunable]
            self._refuse(hint, reason, OutcomeState.REJECTED)
            return False
        return True

    def _accept(self, hint: Hint) -> None:
        tunable = self._tunables.get(hint.tunable)
        refusal = (
            self.stopped()
            or self._checks.not_for_this_process(hint)
            or (self._reason_to_reject(hint, tunable) if tunable else self._tunables.unknown(hint.tunable))
        )
        if refusal or not tunable:
            state = OutcomeState.EXPIRED if self._checks.expired(hint) else OutcomeState.REJECTED
            self._refuse(hint, refusal, state)
        elif hint.mode is HintMode.DRY_RUN:
            reason = f"would change {tunable.kept} to {hint.value}"
            self._outcomes.add(hint, OutcomeState.DRY_RUN, reason, value=tunable.kept, previous=tunable.kept)
        else:
            older = self._waiting.get(hint.tunable)
            if older:
                self._refuse(older, f"hint {hint.hint_id} came before it took effect", OutcomeState.SUPERSEDED)
            self._waiting[hint.tunable] = hint

    def _reason_to_reject(self, hint: Hint, tunable: AnyTunable) -> str:
        return self._checks.reason_to_reject(hint, tunable) or self.councils.absent(tunable)

    def _apply(self, hint: Hint, tunable: AnyTunable) -> None:
        if self._checks.expired(hint):
            del self._waiting[hint.tunable]
            self._refuse(hint, "it expired before a step ended", OutcomeState.EXPIRED)
            return
        if not self._may_try(spends=hint.mode is HintMode.CANARY):
            return  # it waits for the end of the trial or of the pause, or for time to spend, or expires
        del self._waiting[hint.tunable]
        if reason := self.stopped() or stale(hint, tunable) or self._checks.banned(hint):
            self._refuse(hint, reason, OutcomeState.REJECTED)
            return
        old = tunable.kept
        if hint.mode is HintMode.APPLY:
            tunable.put(hint.value)
            self._outcomes.add(hint, OutcomeState.APPLIED, "as asked", value=tunable.shown, previous=old)
            return
        self._notes.begin(tunable.name, hint.value)
        self._begin(hint, tunable, hint.value)
        reason = f"tried in turn with {old}, for at most {self._context.rules.maximum_new} steps"
        self._outcomes.add(hint, OutcomeState.APPLIED, reason, value=hint.value, previous=old)

    def _may_try(self, *, spends: bool = True) -> bool:
        context = self._context
        spent = spends and context.budget.exhausted
        is_open = self.busy() or any(driver.reason for driver in self._drivers)
        return not (is_open or context.pauses.reason() or spent)

    def _begin(self, hint: Hint | None, tunable: AnyTunable, value: str) -> None:
        self._end_reason = ""
        self._trial = LocalTrial(hint, tunable, value, self._recorder, self._context)

    def _continue_trial(self, running: LocalTrial, *, epoch: bool, items: float) -> None:
        running.step_ended(items)
        if not at_its_boundary(running.tunable, epoch=epoch):
            return
        pauses = self._context.pauses
        # An epoch is compared as a whole: most programs write a checkpoint at each one's end.
        by_epoch = running.tunable.terms.granularity == "epoch"
        pause = pauses.reason() if by_epoch else pauses.at_boundary()
        # An order to stop withdraws hints, too: the order is the better reason.
        reason = self._context.stop_file.reason(now=bool(self._end_reason)) or self._end_reason
        if pause:
            reason = running.pause(pause, self._context.clock()) or reason
        ended = running.end(reason) if reason else None if pause else running.boundary()
        if running.just_survived:
            self.survived()
        if ended is not None:
            self._trial = None
            self._close(running, ended)

    def _close(self, running: LocalTrial, ended: Ended) -> None:
        if running.hint is not None:
            self._finish(running.hint, running.tunable, ended, running.old)
        else:
            self.kept_values.checked(running.tunable, running.old, ended, outside=ended.outside)

    def _finish(self, hint: Hint | None, tunable: AnyTunable, ended: Ended, old: str) -> None:
        """Remember and report the end of a trial; count a rollback unless something else than the value ended it."""
        is_kept = ended.decision == Decision.KEPT.value
        by = hint.approved_by if hint else ""
        decision = Decision(ended.decision)
        self._notes.end(tunable.name, ended.value, decision, ended.reason, ratio=ended.ratio, approved_by=by)
        if not ended.outside:
            tunable.rollbacks = 0 if is_kept else tunable.rollbacks + 1
            tunable.rolled_back_ns = self._context.clock()
        self.kept_values.trial_ended()
        if is_kept and tunable.terms.scope == "local":
            self.kept_values.kept(tunable, old)
        if hint is not None:
            report_end(self._outcomes, hint, ended, tunable.kept, old)

    def _refuse(self, hint: Hint, reason: str, state: OutcomeState) -> None:
        tunable = self._tunables.get(hint.tunable)
        shown = tunable.kept if tunable else ""
        self._outcomes.add(hint, state, reason, value=shown, previous=shown)
