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

from kernelcast.probe.conditions.checks import HintChecks, HintContext, at_its_boundary, stale
from kernelcast.probe.outcomes import OutcomeQueue
from kernelcast.probe.ranks.alone import LocalTrial
from kernelcast.probe.ranks.councils import Councils
from kernelcast.probe.ranks.leading import APPLIED
from kernelcast.probe.ranks.messages import CHECK, Ended, Offer, Work, is_search
from kernelcast.probe.ranks.searched import SearchMember
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.tunables import AnyTunable, TunableSet
from kernelcast.probe.tuned.approved import SearchApprovals
from kernelcast.probe.tuned.kept_values import KeptValues
from kernelcast.probe.tuned.notes import CandidateNotes
from kernelcast.probe.tuned.reports import new_id
from kernelcast.probe.tuned.steps import Driver, FirstStep
from kernelcast.tuning.experiment import Decision
from kernelcast.wire.errors import EventError
from kernelcast.wire.events import Hint, HintMode, OutcomeState, hint_from, withdrawn_key
from kernelcast.wire.recent_ids import RecentIds
from kernelcast.wire.tuning.approvals import APPROVAL_TYPE, approval_from
from kernelcast.wire.tuning.experience import EXPERIENCE_TYPE, Experience, experience_from
from kernelcast.wire.tuning.pauses import LATER

__all__ = ["HintContext", "HintReceiver"]

# Ids of received hints that are remembered, so that one which is sent again after a reconnect is ignored.
MAX_SEEN: Final = 4096
NOT_WAITING: Final = "its hint was withdrawn, replaced or has expired on one of the ranks"


class HintReceiver:
    """Receives hints, rejects those that do not match, and applies the others.

    `receive` and `withdraw` run on the probe's thread, everything else on the program's; a lock protects the shared
    state. One trial is open at a time, because two would disturb each other's times; further hints wait. Trials of this
    process and of all ranks ask the methods of `CouncilMember`: `stop_reason` at each boundary or meeting.
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
        self._tried: Hint | None = None
        """The hint of the open trial, here or on all ranks."""
        # Why the open trial ends at its next boundary or meeting; empty without a reason.
        self._end_reason = ""
        self.councils = Councils(self, recorder, context, SearchMember(self._notes, outcomes))
        """Meetings about collective tunables and spaces."""
        self._searches: tuple[Driver, ...] = ()
        # Those that have not run yet.
        self._first_steps: list[FirstStep] = []
        self.kept_values = KeptValues(recorder.progress, context)
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
                    reason = self.stopped() or "it was withdrawn"
                    self._refuse(hint, reason, OutcomeState.REJECTED)
            if self._tried is not None and self._tried.key == key:
                self._end_reason = "its hint was withdrawn"

    def trial_prevented(self, besides: Driver | None = None) -> str:
        """Return the reason for which nothing may be tried now; empty if it may. Cheap enough for every call.

        Args:
            besides: The search that asks: its own candidate is no reason.
        """
        for driver in self._drivers:
            if driver is not besides and driver.reason:
                return driver.reason
        if self._waiting and besides is not None and self._hint_for_this_process_waits():
            return "a hint waits"
        return self.stopped(now=False) or self._context.pauses.spaces()

    @property
    def _drivers(self) -> tuple[Driver, ...]:
        """What tries values at boundaries."""
        drivers = (*self.councils.all, *self._searches)
        return drivers if self._trial is None else (self._trial, *drivers)

    def close(self) -> None:
        """End open trials and searches without a decision, because the program ends."""
        for driver in self._drivers:
            driver.close("the program ended")
        self.councils.searches.close("the program ended")

    def forked(self) -> None:
        """Put the kept values in force in a forked child: no step there ends what its parent was trying at the fork."""
        self._lock = threading.Lock()  # a thread of the parent may hold the other one
        for driver in self._drivers:
            driver.forked()
        self._trial = None

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
        if self._trial is not None:
            self._trial.step_ended(items, epoch=epoch)
        with self._lock:
            for name, hint in list(self._waiting.items()):
                waiter = self._tunables.get(name)
                if waiter and waiter.terms.scope == "local" and at_its_boundary(waiter, epoch=epoch):
                    self._apply(hint, waiter)
            for value in self.kept_values.due:
                if at_its_boundary(value.tunable, epoch=epoch) and self._may_try() and not self.stopped():
                    work = Work(new_id() + CHECK, value.tunable.name, value.start, value.kept)
                    self.councils.searches.search_began(work, f"checked again: {value.check.reason}")
                    self._begin(work, value.tunable)

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

    def stopped(self, *, now: bool = True) -> str:
        """Return the order by which nothing may be tried; empty without one. All trials and searches ask it.

        Args:
            now: Read it in any case, not twice a second at most.
        """
        return self._context.orders.reason(now=now)

    def offers(self, tunables: Iterable[str]) -> Sequence[Offer]:
        """Return the hints that wait for collective tunables; those that have become void are refused."""
        with self._lock:
            hints = [hint for name in tunables if (hint := self._waiting.get(name)) and self._still_fits(hint)]
        if self._context.pauses.reason() or self._context.budget.exhausted:
            return ()
        return [Offer(hint.hint_id, hint.tunable, hint.value, hint.mode.value) for hint in hints]

    def stop_reason(self, announced: str = "") -> str:
        """Return the reason for which the open trial must end, or none may begin on all ranks; empty without one.

        Args:
            announced: Id of the hint or search that the ranks are about to begin.
        """
        with self._lock:
            is_local = self._trial is not None
            # An order to stop withdraws hints, too: the order is the better reason.
            reason = self.stopped(now=not is_local or bool(self._end_reason)) or self._end_reason
            if not reason and self._tried is not None and not is_local:
                # It ends a trial on all ranks, because ranks notice it at different steps.
                pause = self._context.pauses.reason()
                reason = f"{pause}; {LATER}" if pause else ""
            waits = (
                not announced or is_search(announced) or announced in {one.hint_id for one in self._waiting.values()}
            )
            return reason or ("" if waits else NOT_WAITING)

    def busy(self, besides: object = None) -> bool:
        """Whether a trial is open here that is not one of a council."""
        alone = self._trial is not None or any(search.reason for search in self._searches)
        return alone or self.councils.open_besides(besides)

    def search_wait_reason(self) -> str:
        """Return the reason, besides `stop_reason`, for which a search on all ranks must wait; empty without one."""
        context, waits = self._context, self._waiting and self._hint_for_this_process_waits()
        reason = context.pauses.spaces() or ("a hint waits" if waits else "")
        return reason or ("the budget for trials is spent" if context.budget.exhausted else "")

    def trial_began(self, work: Work) -> None:
        """Note that a trial on all ranks begins."""
        with self._lock:
            hint = self._waiting.get(work.tunable)
            if hint is not None and hint.hint_id == work.trial:
                del self._waiting[work.tunable]
                self._hint_is_tried(hint, work, "on all ranks ")
            else:
                self._notes.begin(work.tunable, work.value)
                self._end_reason = NOT_WAITING

    def survived(self) -> None:
        """Note that the value on trial has run a few launches, so it does not end the process."""
        self._notes.no_harm()

    def trial_finished(self, tunable: AnyTunable, ended: Ended, old: str) -> None:
        """Report the end of a trial or search, and remember it; its value is set already."""
        if tunable.terms.scope == "local":
            self._trial = None
        if is_search(ended.trial):
            self.councils.searches.search_ended(tunable, ended, old)
            self.kept_values.trial_ended(checked=tunable.name, outside=ended.outside)
            return
        with self._lock:
            hint, self._end_reason = self._tried, ""
            if hint is not None and hint.hint_id == ended.trial:
                self._tried = None
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
        work = Work(hint.hint_id, tunable.name, hint.value, old)
        self._hint_is_tried(hint, work)
        self._begin(work, tunable)

    def _hint_is_tried(self, hint: Hint, work: Work, where: str = "") -> None:
        self._tried, self._end_reason = hint, ""
        self._notes.begin(work.tunable, work.value)
        reason = f"tried {where}in turn with {work.old}, for at most {self._context.rules.maximum_new} steps"
        self._outcomes.add(hint, OutcomeState.APPLIED, reason, value=work.value, previous=work.old)

    def _may_try(self, *, spends: bool = True) -> bool:
        context = self._context
        spent = spends and context.budget.exhausted
        is_open = self.busy() or any(driver.reason for driver in self._drivers)
        return not (is_open or context.pauses.reason() or spent)

    def _begin(self, work: Work, tunable: AnyTunable) -> None:
        self._trial = LocalTrial(work, tunable, self, self._recorder, self._context)

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
            self._outcomes.add(
                hint,
                OutcomeState.KEPT if is_kept else OutcomeState.ROLLED_BACK,
                ended.reason,
                value=tunable.kept,
                previous=old,
                measured_ratio=ended.ratio,
                measured_interval=ended.interval,
                pairs=ended.blocks,
                decision=ended.decision,
                step_time_ratio=ended.step_time_ratio,
                device_time_ratio=ended.device_time_ratio,
                candidate_steps=ended.candidate_steps,
            )

    def _refuse(self, hint: Hint, reason: str, state: OutcomeState) -> None:
        tunable = self._tunables.get(hint.tunable)
        shown = tunable.kept if tunable else ""
        self._outcomes.add(hint, state, reason, value=shown, previous=shown)
