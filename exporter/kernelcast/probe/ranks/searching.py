"""The search of a collective space, on the first rank: converts requests of its campaign to plans for all ranks.

`Leader` has a `PooledSearch` while a space is searched or a kept configuration is checked. A *campaign*
(`kernelcast.tuning.campaign`) chooses the configurations to measure; the *proof* is the experiment that compares its
best one with the kept one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import mean
from typing import Final

from kernelcast.probe.ranks.messages import CHECK, MAX_LAUNCHES, PROOF, Ended, Report, Work
from kernelcast.probe.ranks.pooled import PooledTimes, run_lengths
from kernelcast.probe.trial_budget import LaunchCost, TrialBudget
from kernelcast.probe.tuned.collective import CollectiveSpace
from kernelcast.probe.tuned.reports import new_id
from kernelcast.tuning.campaign import LaunchRequest
from kernelcast.tuning.experiment import Arm, Decision

MAX_PROOFS: Final = 3
"""Experiments of a search, those that something else has ended included."""


class PooledSearch:
    """One search, or the check of a configuration that was kept earlier. For the program's thread.

    The campaign sees the times of a launch per item, summed over the ranks. Its best configuration is then proved by
    an experiment of all ranks, as a hint is.

    Args:
        space: The space.
        kept: The configuration in force: if it is not the start, it is checked against that.
        clock: Nanoseconds.

    Attributes:
        trial: Id of the search.
        is_check: Whether it checks a kept configuration.
        running: Whether the ranks run its plans.
    """

    def __init__(self, space: CollectiveSpace, kept: str, clock: Callable[[], int]) -> None:
        self.space = space
        self.is_check = kept != space.start
        self.trial = new_id() + (CHECK if self.is_check else "")
        self.running = False
        self._campaign = space.campaign() if space.campaign and not self.is_check else None
        self._banned: set[str] = set()
        self._times = PooledTimes(self._record)
        # Planned launches whose times the ranks have not all reported, by number.
        self._outstanding: dict[int, Arm] = {}
        # Launches of the open request so far: seconds per item, and seconds of a rank.
        self._measured: list[tuple[float, float]] = []
        self._ranks = 1
        # Numbers of the next launch to plan, and of the first one of the last plan. Times of launches before that plan
        # cannot come any more once all ranks have met.
        self._next_number = self._planned = 0
        # The value in force when the last plan ends; a launch of another value is a change, which is not measured.
        self._last_value = kept
        self._proofs = 0
        # Launches of the open request that were planned as not measured.
        self._unmeasured = 0
        # The ranks charge the budgets of their processes themselves.
        self._cost = LaunchCost(TrialBudget(), space.share, clock)

    def ban(self, configurations: Sequence[str]) -> None:
        """Run these on no rank."""
        self._banned.update(configurations)

    def is_banned(self, work: Work) -> bool:
        """Whether a trial is one of this search with a configuration that must not run."""
        return work.trial.startswith(self.trial) and work.value in self._banned

    @property
    def is_spent(self) -> bool:
        """Whether the search has cost its share of the time."""
        # Without a share of its own each rank asks for the budget of its process.
        return self.space.share is not None and self._cost.is_spent

    def plan(self, boundaries: int, kept: str) -> Work:
        """Plan the launches until the next meeting; the first launch after a change is not measured."""
        # Example: the kept value is in force, the request is 4 launches of b, and the next meeting is 10 boundaries
        # away. The plan is b five times: number 0 is not measured, 1 to 4 are. Then the kept value runs.
        self._planned = self._next_number
        work = Work(self.trial, self.space.name, kept, kept, self._planned)
        request = self._request()
        if request is None:
            return work
        missing = request.launches - len(self._measured) - len(self._outstanding)
        if missing <= 0:
            self._last_value = kept
            return work
        value = self.space.text(request.ordinal)
        fresh = int(value != self._last_value)
        plan = [value] * min(fresh + missing, boundaries, MAX_LAUNCHES)
        for place in range(fresh, len(plan)):
            self._outstanding[self._planned + place] = Arm.CANDIDATE
        self._next_number += len(plan)
        self._unmeasured += fresh
        self._last_value = value if len(plan) == boundaries else kept
        return replace(work, value=value, plan=run_lengths(plan))

    def pool(self, reports: Sequence[Report | None]) -> None:
        """Add the reports of a meeting, in the order of the ranks; launches without a time of each are run again."""
        for rank, report in enumerate(reports):
            if report is not None and report.trial == self.trial:
                self._times.add(rank, report.launches)
        self._ranks = len(reports)
        self._times.record_before(self._planned, self._outstanding, self._ranks)
        self._outstanding = {number: arm for number, arm in self._outstanding.items() if number >= self._planned}
        request = self._campaign.next() if self._campaign else None
        if self._campaign and request and len(self._measured) >= request.launches:
            measured, self._measured = self._measured[: request.launches], []
            self._add_lost_time(request, [seconds for _, seconds in measured])
            self._campaign.measured([per_item for per_item, _ in measured])

    def suspend(self) -> None:
        """Stop running plans; launches of them that were not measured are run again."""
        self.running = False
        self._outstanding.clear()

    def proposal(self) -> str:
        """Return the configuration that an experiment is to prove; empty while there is none."""
        if self._proofs >= MAX_PROOFS:
            return ""
        if self._campaign is None:
            return self.space.start
        promising = map(self.space.text, self._campaign.promising) if self._request() is None else ()
        return next((value for value in promising if value not in self._banned), "")

    def begin_proof(self, value: str, kept: str) -> Work:
        """Return the trial that proves a configuration."""
        self.suspend()
        self._proofs += 1
        return Work(f"{self.trial}{PROOF}{self._proofs}", self.space.name, value, kept)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to run."""
        return self._request() is None and not self.proposal()

    def without_proof(self, kept: str) -> Ended:
        """Return the end of a search that has found nothing to prove."""
        decision, reason = Decision.INCONCLUSIVE.value, "no configuration was worth an experiment"
        return Ended(self.trial, self.space.name, kept, decision, reason, outside=True)

    def failed(self, error: Exception, kept: str) -> Ended:
        """Return the end of a search that had an error."""
        ended = self.without_proof(kept)
        return replace(ended, reason=f"the search had an error: {error!r}"[:500])

    def _request(self) -> LaunchRequest | None:
        """Return the request of the campaign, once it asks for a configuration that is not banned."""
        campaign = self._campaign
        request = campaign.next() if campaign else None
        while campaign and request and self.space.text(request.ordinal) in self._banned:
            campaign.failed("it failed on a rank")
            request = campaign.next()
        return request

    def _record(self, _arm: Arm, seconds: float, items: float, _number: int) -> None:
        self._measured.append((seconds / items if items > 0 else seconds, seconds / self._ranks))

    def _add_lost_time(self, request: LaunchRequest, times: Sequence[float]) -> None:
        """Count the seconds of launches beyond the usual one; those that were not measured count as the others."""
        unmeasured, self._unmeasured = self._unmeasured, 0
        is_candidate = self.space.text(request.ordinal) != self.space.start
        for seconds in times:
            self._cost.launch(seconds, candidate=is_candidate)
        if is_candidate and self._cost.is_known:
            self._cost.lose(unmeasured * max(0.0, mean(times) - self._cost.usual_seconds))


def places_of(values: Sequence[str], allowed: Sequence[str]) -> tuple[int, ...]:
    """Return the places of values among the allowed ones."""
    known: Mapping[str, int] = {value: place for place, value in enumerate(allowed)}
    return tuple(known[value] for value in values if value in known)


def values_at(places: Sequence[int], allowed: Sequence[str]) -> list[str]:
    """Return the allowed values at places."""
    return [allowed[place] for place in places if 0 <= place < len(allowed)]
