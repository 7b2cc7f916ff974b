"""The first rank's decisions: which hint begins, which values its trial runs, and how it ends.

`Council` passes the reports of a meeting to `decide`, and sends the result, `state`, at the next meeting. Example, a
hint: at meeting 1 all ranks report it; 2 announces it (`wanted`), so that ranks begin nothing of their own; 3 and later
ones send plans of launches; the last one sends its end, which is repeated for ranks that missed it.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter_ns
from typing import Final

from kernelcast.probe.conditions.checks import HintContext
from kernelcast.probe.ranks.messages import Ended, Offer, Report, State, Work
from kernelcast.probe.ranks.pooled import PooledTrial
from kernelcast.probe.ranks.searching import PooledSearch, values_at
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.tunables import AnyTunable
from kernelcast.probe.tuned.collective import CollectiveSpace
from kernelcast.probe.tuned.rechecks import Recheck
from kernelcast.tuning.experiment import Decision
from kernelcast.tuning.journal import KeptConfiguration
from kernelcast.wire.events import HintMode

APPLIED: Final = "applied"
"""Decision on a hint that asked for no trial."""
REMEMBERED: Final = 4
"""Ended trials that every message repeats, for ranks that have missed some."""


class Leader:
    """Decides for all ranks on the reports of each meeting. Every rank has one; only the first rank's is used.

    Args:
        recorder: Measures the kernels of this rank.
        context: Rules, seed and clock of trials.
    """

    def __init__(self, recorder: Recorder, context: HintContext) -> None:
        self._recorder = recorder
        self._context = context
        # Values that the ranks have agreed on, by tunable. They hold from the next meeting on.
        self._kept: dict[str, str] = {}
        # The open experiment: of a hint, of a proof, or of a check.
        self._trial: PooledTrial | None = None
        self._last_ends: deque[Ended] = deque(maxlen=REMEMBERED)
        # A hint or search begins in two meetings. The first announces its id (`_wanted`), so that each rank ends what
        # it does on its own; the second begins it if it was announced (`_announced`) and no rank is busy any more.
        self._wanted = self._announced = ""
        # Whether a rank has reported a hint at the last meeting.
        self._offers = False
        self._clock = context.step_clock or perf_counter_ns
        # Searches and checks in the order in which they are made; the first one belongs to `_search`.
        self._spaces: deque[CollectiveSpace] = deque()
        self._search: PooledSearch | None = None
        self._rechecks: dict[str, tuple[CollectiveSpace, Recheck]] = {}
        """Kept configurations that are checked again, and when."""

    @property
    def open(self) -> bool:
        """Whether a trial has begun."""
        return self._trial is not None or self._is_searching

    @property
    def active(self) -> bool:
        """Whether the next meetings have something to decide."""
        return self.open or self._offers or bool(self._wanted)

    @property
    def _is_searching(self) -> bool:
        return self._search is not None and self._search.running

    def search(self, space: CollectiveSpace) -> None:
        """Search a space once the ranks have nothing else to try."""
        self._spaces.append(space)
        self._rechecks.pop(space.name, None)

    def recheck(self, space: CollectiveSpace, last: KeptConfiguration | None = None) -> None:
        """Compare the kept configuration with the start again; `last`: see `Recheck.of`."""
        journal = self._context.journal
        self._rechecks[space.name] = space, Recheck.of(self._now(), last, journal.driver if journal else "")

    def state(self, tunables: Mapping[str, AnyTunable], pause: int) -> State:
        """Return the state that all ranks take over at the meeting, with a plan up to the one after it."""
        kept = {name: self._kept.get(name, tunable.kept) for name, tunable in tunables.items()}
        work = self._trial.plan(pause) if self._trial is not None else None
        if work is None and self._search is not None and self._search.running:
            name = self._search.space.name
            work = self._search.plan(pause, kept.get(name, self._search.space.start))
        self._announced = self._wanted
        return State(kept, self._wanted, work, tuple(self._last_ends))

    def decide(self, tunables: Mapping[str, AnyTunable], reports: Sequence[Report | None]) -> None:
        """Decide on the reports of a meeting, None of a rank whose message is missing; `state` has the decision."""
        # In this order: end the open trial, if it has a verdict or must stop; queue checks that are due; begin a hint;
        # only if no hint waits, go on with a search.
        present = [report for report in reports if report is not None]
        stop = next((report.stop for report in present if report.stop), "")
        self._offers = any(report.offers for report in present)
        if self._trial is not None:
            self._trial.pool(reports)
            ended = self._trial.ended()
            self._learn_bans(tunables, present)
            if self._search is not None and self._search.is_banned(self._trial.work):
                failed, reason = Decision.FAILED.value, "it failed on another node"
                self._end(replace(self._trial.abandon(reason), decision=failed, reason=reason, outside=True))
            elif stop and ended is not None and ended.decision == Decision.KEPT.value:
                self._end(replace(ended, decision=Decision.INCONCLUSIVE.value, reason=stop, outside=True))
            elif ended is not None:
                self._end(ended)
            elif stop:
                self.abandon(stop)
        elif self._search is not None:
            self._pool(self._search, tunables, reports)
        # Nothing begins unless all ranks have reported and none objects.
        complete = [] if stop or len(present) < len(reports) else present
        self._queue_due_checks()
        self._consider_hint(tunables, complete)
        if self._trial is None and not self._common_offers(tunables, complete):
            self._consider_search(tunables, complete)

    def abandon(self, reason: str) -> None:
        """End the open trial without a decision; a search goes on later."""
        if self._trial is not None and self._trial.is_planned:
            self._end(self._trial.abandon(reason))
        self._trial = None  # no rank knows of one without a plan: its hint waits on
        if self._search is not None:
            self._search.suspend()

    def _end(self, ended: Ended) -> None:
        trial, self._trial = self._trial, None
        self._last_ends.append(ended)
        if ended.decision in (APPLIED, Decision.KEPT.value):
            self._kept[ended.tunable] = ended.value
        search, is_kept = self._search, ended.decision == Decision.KEPT.value
        if search is None or not ended.trial.startswith(search.trial):
            # The trial of a hint: its value is checked later against the one before it.
            if trial is not None and is_kept:
                self.recheck(CollectiveSpace(ended.tunable, trial.work.old))
            return
        # A proof or check of the search, or the search itself, has ended.
        search.suspend()
        if is_kept and not search.is_check:
            self.recheck(search.space)
        if search.is_check and is_kept and search.space.campaign is not None:
            # The check has kept the start, so the configuration of an earlier run is worse now: search again.
            self._search = PooledSearch(search.space, search.space.start, self._clock)
        elif not ended.outside or not search.proposal():
            # The search is over. Otherwise something else ended the proof: the same search makes another one.
            self._spaces.popleft()
            self._search = None

    def _queue_due_checks(self) -> None:
        """Queue the checks that are due."""
        for name, (space, recheck) in list(self._rechecks.items()):
            if recheck.is_due(self._now):
                del self._rechecks[name]
                self._spaces.append(space)

    def _now(self) -> float:
        return self._context.clock() / 1e9

    def _consider_hint(self, tunables: Mapping[str, AnyTunable], reports: Sequence[Report]) -> None:
        """Begin the hint that all ranks have, once all ranks know that they may begin nothing else."""
        common = self._common_offers(tunables, reports)
        if self._trial is not None or not common:
            self._wanted = ""
            return
        first = common[0]
        self._wanted = first.hint_id
        if self._announced == first.hint_id and not any(report.busy for report in reports):
            self._wanted = ""
            self._begin(tunables[first.tunable], first)

    def _begin(self, tunable: AnyTunable, offer: Offer) -> None:
        old = self._kept.get(tunable.name, tunable.kept)
        if offer.mode == HintMode.APPLY.value:
            self._end(Ended(offer.hint_id, tunable.name, offer.value, APPLIED, "on all ranks"))
            return
        work = Work(offer.hint_id, tunable.name, offer.value, old)
        self._trial = PooledTrial.of(work, tunable, self._recorder, self._context)

    def _common_offers(self, tunables: Mapping[str, AnyTunable], reports: Sequence[Report]) -> list[Offer]:
        """Return the hints that all ranks have."""
        closed = {one.trial for one in self._last_ends}
        return [
            offer
            for offer in (reports[0].offers if reports else ())
            if all(offer in report.offers for report in reports)
            and offer.tunable in tunables
            and offer.hint_id not in closed
        ]

    def _pool(self, search: PooledSearch, tunables: Mapping[str, AnyTunable], reports: Sequence[Report | None]) -> None:
        try:
            search.pool(reports)
        except Exception as error:  # noqa: BLE001  the search may be the program's own
            kept = tunables[search.space.name].kept
            self._end(search.failed(error, kept))

    def _consider_search(self, tunables: Mapping[str, AnyTunable], reports: Sequence[Report]) -> None:
        """Begin, go on with or suspend the search of a space, and have its best configuration proved.

        Args:
            tunables: The tunables of the ranks.
            reports: Those of all ranks; none if a rank is missing or objects.
        """
        if not self._spaces:
            return
        name = self._spaces[0].name
        kept = self._kept.get(name, tunables[name].kept)
        if self._search is None:
            if self._spaces[0].campaign is None and kept == self._spaces[0].start:
                self._spaces.popleft()  # it was taken back, or replaced, since its check became due
                return
            try:
                self._search = PooledSearch(self._spaces[0], kept, self._clock)
            except Exception:
                self._spaces.popleft()  # else it would be made again at each meeting
                raise
        search = self._search
        self._learn_bans(tunables, reports)
        # `report.rests` is the reason for which a rank lets searches wait, such as a hint for one process.
        if not reports or search.is_spent or any(report.rests or report.busy for report in reports):
            # Ranks that are busy with something of their own end it once they know that the search waits for them.
            self._wanted = search.trial if reports and not any(report.rests for report in reports) else ""
            search.suspend()
        elif search.running and not search.is_over:
            self._begin_proof(search, tunables[name], kept)
        elif search.is_over:
            self._end(search.without_proof(kept))
        elif self._announced == search.trial:
            self._wanted = ""
            search.running = True
        else:
            self._wanted = search.trial

    def _learn_bans(self, tunables: Mapping[str, AnyTunable], reports: Sequence[Report]) -> None:
        if self._search is not None:
            name = self._search.space.name
            places = [place for report in reports for space, places in report.bans if space == name for place in places]
            self._search.ban(values_at(places, tunables[name].allowed))

    def _begin_proof(self, search: PooledSearch, tunable: AnyTunable, kept: str) -> None:
        value = search.proposal()
        if value:
            proof = search.begin_proof(value, kept)
            self._trial = PooledTrial.of(proof, tunable, self._recorder, self._context, is_proof=True)
