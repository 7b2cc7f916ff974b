"""A tuning campaign: asks for configurations, compares the best ones, and proves the best against the kept one.

A campaign is independent of the place where configurations run, and runs nothing itself. Its caller (the probe inside a
program, or `lab.replay`) takes a request from `next`, runs it, and answers with `measured`, `failed` or
`refused`::

    campaign = Campaign(space, seed=1, budget=200)
    while (request := campaign.next()) is not None:
        campaign.measured([run(space.configuration(request.ordinal)) for _ in range(request.launches)])
    space.configuration(campaign.kept)

Phases: measure the start; explore (`Search` proposes); run the best few in turn and drop the slower ones; prove at
most two by an `Experiment`. A space of a few configurations is not searched: an experiment compares each with the best
before it. A cost is a time over that of the start.
"""

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from math import exp, hypot, sqrt
from random import Random
from statistics import median, stdev
from time import thread_time_ns
from typing import Any, Final

from kernelcast.tuning.experiment import Arm, Decision, Experiment, ExperimentVerdict, Objective
from kernelcast.tuning.payback import paid_back
from kernelcast.tuning.requests import CampaignRules, LaunchAnswer, LaunchRequest, Proved
from kernelcast.tuning.search import Search, search_for
from kernelcast.tuning.search.warm import MAX_SEEDS
from kernelcast.tuning.space import Space
from kernelcast.tuning.times import LaunchTimes, cut_mean

__all__ = ["Campaign", "CampaignRules", "LaunchRequest", "Proved"]

USUAL_BUDGET: Final = 200
"""Budget for which `CampaignRules.launches` is meant; a larger budget allows more launches in proportion."""
LAUNCHES_OF_P99: Final = 3000
"""Launches of an experiment that judges the 99th percentile."""
NO_ANSWERS: Final = 3
"""Refusals of new configurations in a row, or useless proposals, after which the campaign measures no other."""


Steps = Generator[LaunchRequest, LaunchAnswer, Any]


class Campaign:
    """One campaign. For one thread.

    Args:
        space: The space to search.
        seed: Determines all random choices.
        budget: Most different configurations that are measured, failing ones and the start included.
        seeds: Configurations that other devices kept, best first; measured first and dropped when they do not help.
        rules: Limits.
        search: A search of your own, by ask and tell; by default the one that suits space and budget.

    Attributes:
        kept: Ordinal of the configuration in force: the start until a verdict replaces it.
        best: Ordinal of the fastest configuration by estimate; not proved.
        seed: As given.
        verdicts: The verdicts.
        failures: Reasons of failing configurations.
        proving: Whether an experiment runs.
        promising: Configurations that are worth an experiment, fastest first, once the comparison has ended.
        suggest_ms: Processor time of each suggestion, and of the search's `tell` that follows.
    """

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        budget: int,
        seeds: Sequence[int] = (),
        rules: CampaignRules | None = None,
        search: Search | None = None,
    ) -> None:
        self.space = space
        self.rules = rules or CampaignRules()
        self.kept = self.best = space.start
        self.verdicts: list[Proved] = []
        self.suggest_ms: list[float] = []
        self.failures: dict[int, str] = {}
        self.proving = False
        self._launch_seconds = 0.0
        self._first_launches: dict[int, list[float]] = {}
        self.promising: tuple[int, ...] = ()
        self.times = LaunchTimes(space.start)
        self._budget = self._allowed = budget
        self._is_early = False
        self.seed = seed
        self._random = Random(f"campaign {seed}")
        self._search = search or search_for(space, seed=seed, seeds=seeds, budget=budget)
        self._offered: deque[int] = deque()
        self._offers = 0
        self._steps = self._run()
        self._last = -1
        self._request: LaunchRequest | None = next(self._steps, None)

    @property
    def evaluations(self) -> int:
        """Different configurations that were measured, failing ones included."""
        return len({*self.times.measured, *self.failures})

    def expected(self) -> tuple[int, int]:
        """Return how many configurations will be measured, and how many further launches that takes, roughly."""
        configurations = min(self._budget, len(self.space))
        proof = self.rules.usual_proof if self._goes_by_mean else LAUNCHES_OF_P99
        launches = proof * (configurations - 1)
        if not self._proves_each():
            launches = 2 * configurations + self.rules.finalists * self.rules.final_rounds + proof
        return configurations, max(0, launches - self.times.launches)

    @property
    def _goes_by_mean(self) -> bool:
        return self.rules.experiment.objective is Objective.MEAN

    def _proves_each(self) -> bool:
        return len(self.space) - 1 <= self.rules.few and self.rules.proofs > 0

    def offer(self, ordinal: int) -> None:
        """Measure a configuration that another device has kept before the search asks for others; at most five."""
        if self._offers < MAX_SEEDS and ordinal not in self._offered:
            self._offers += 1
            self._offered.append(ordinal)

    def next(self) -> LaunchRequest | None:
        """Return what to run next; None at the end."""
        request, more = self._request, self._unsettled()
        return replace(request, launches=request.launches + more) if request is not None and more else request

    def _unsettled(self) -> int:
        """Launches of the present request that a declared `Rules.settle` leaves out; `times` knows that one is cold."""
        is_same = self._request is None or self._request.ordinal == self._last
        settle = self.rules.experiment.settle
        return settle if settle > 1 and not self.proving and not is_same else 0

    def measured(self, times: Sequence[float]) -> None:
        """Answer the request with the times of its launches."""
        self._send(LaunchAnswer(times=tuple(times[self._unsettled() :])))

    def failed(self, reason: str) -> None:
        """Answer the request: the configuration failed."""
        self._send(LaunchAnswer(failed=reason))

    def refused(self, reason: str) -> None:
        """Answer the request: it was not run."""
        self._send(LaunchAnswer(refused=reason))

    def paced(self, launch_seconds: float) -> None:
        """Note the usual time of a launch; without it nothing is said of what first launches cost."""
        self._launch_seconds = launch_seconds

    def prepared(self, ordinal: int, seconds: float) -> None:
        """Note the time in which a configuration was compiled before its first launch."""
        if self._launch_seconds > 0:
            self._first_launches.setdefault(ordinal, []).append(seconds / self._launch_seconds)

    def limit(self, left: int, *, after: int) -> None:
        """Lower the budget: only this many further configurations can be measured after one that is being measured."""
        self._budget = min(self._budget, self.evaluations + (not self._is_known(after)) + left)

    def lost_ratio(self) -> float:
        """Return the time of launches above the start's, over the start's time for as many launches."""
        return self.times.lost_ratio() if self.space.start in self.times.measured else 0.0

    def _send(self, answer: LaunchAnswer) -> None:
        if self._request is None:
            return
        self._last = self._request.ordinal
        if answer.times and self.proving:
            self.times.add_proof(self._request.ordinal, answer.times)
        elif answer.times:
            self.times.add(self._request.ordinal, answer.times)
        elif answer.failed:
            self.failures.setdefault(self._request.ordinal, answer.failed)
        try:
            self._request = self._steps.send(answer)
        except StopIteration:
            self._request = None

    # The phases. Each is a generator: `yield LaunchRequest` hands a request to `next`, and returns the caller's answer.
    # `_send` has added the answer's times or failure before the generator goes on.
    def _run(self) -> Steps:
        start = self.space.start
        answer = yield LaunchRequest(start, 1 + self.rules.repeats)
        if not answer.times:
            return
        self._report(start)
        if self._proves_each():
            yield from self._prove_each()
            return
        yield from self._explore()
        getattr(self._search, "close", _no_close)()
        finalists = yield from self._compare()
        self.best = finalists[0] if finalists else start
        self.promising = tuple(one for one in finalists if one != self.kept and self._is_worth_keeping(one))
        yield from self._prove_all(finalists)

    # Measure configurations that the search proposes, once each; those near the best get more launches at once. A visit
    # of the start after every ten shows drift.
    def _explore(self) -> Steps:
        refusals = 0
        while self.evaluations < self._budget and refusals < NO_ANSWERS:
            ordinal = self._next_new()
            if ordinal is None:
                return
            if self._is_known(ordinal) or ordinal not in self.space:
                refusals += 1  # a search of another package may propose so
                continue
            if self.evaluations % self.rules.reference_every == 0:
                yield LaunchRequest(self.space.start, 2)
            answer = yield LaunchRequest(ordinal, 1)
            refusals = refusals + 1 if answer.refused else 0
            if answer.times and self._close_to_best(ordinal):
                yield LaunchRequest(ordinal, self.rules.repeats)
            if not answer.refused:
                self._report(ordinal)

    def _is_known(self, ordinal: int) -> bool:
        return ordinal in self.times.measured or ordinal in self.failures

    def _next_new(self) -> int | None:
        while self._offered:
            offered = self._offered.popleft()
            if not self._is_known(offered):
                return offered
        began = thread_time_ns()
        ordinal = self._search.ask()
        self.suggest_ms.append((thread_time_ns() - began) / 1e6)
        return ordinal

    def _report(self, ordinal: int) -> None:
        began = thread_time_ns()
        cost = self.times.estimate(ordinal) if self._works(ordinal) else None
        if cost is not None and (self.best == ordinal or cost < self.times.estimate(self.best)):
            self.best = ordinal
        self._search.tell(ordinal, cost)
        if self.suggest_ms:
            self.suggest_ms[-1] += (thread_time_ns() - began) / 1e6

    def _works(self, ordinal: int) -> bool:
        """Whether a configuration was measured and has not failed, before or since."""
        return ordinal in self.times.measured and ordinal not in self.failures

    def _close_to_best(self, ordinal: int) -> bool:
        return self.times.estimate(ordinal) < self.rules.repeat_ratio * self.times.estimate(self.best)

    def _compare(self) -> Generator[LaunchRequest, LaunchAnswer, list[int]]:
        """Run the best in turn, drop the slower ones; return all that work, best first."""
        yield from self._repeat_single()
        estimates = {ordinal: self.times.estimate(ordinal) for ordinal in filter(self._works, self.times.measured)}
        ranked = sorted(estimates, key=estimates.__getitem__)
        if not ranked:
            return []
        limit = estimates[ranked[0]] * (1 + self.rules.final_share)
        racing = [ordinal for ordinal in ranked[: self.rules.finalists] if estimates[ordinal] <= limit]
        ratios: dict[int, list[float]] = {ordinal: [] for ordinal in racing}
        for turn in range(self.rules.final_rounds):
            if len(racing) < 2:
                break
            round_times = yield from self._round(racing)
            racing = [ordinal for ordinal in racing if ordinal in round_times]
            level = median(round_times.values()) if round_times else 1.0
            for ordinal, time in round_times.items():
                ratios[ordinal].append(time / level)
            if turn >= 3:  # a standard deviation needs some values
                racing = _survivors(racing, ratios)
        order = sorted(racing, key=lambda one: cut_mean(ratios[one]) if ratios[one] else 1.0)
        return [*order, *[one for one in ranked if one not in racing and self._works(one)]]

    def _round(self, racing: Sequence[int]) -> Generator[LaunchRequest, LaunchAnswer, dict[int, float]]:
        """Run each once, in random order."""
        round_times = {}
        for ordinal in self._random.sample(racing, len(racing)):
            answer = yield LaunchRequest(ordinal, 1)
            if answer.times:
                round_times[ordinal] = answer.times[0]
        return round_times

    def _repeat_single(self) -> Steps:
        """Run those again that are near the best by one launch alone, which may have been a slow one."""
        best = self.times.estimate(self.best)
        launched_once = (one for one, record in self.times.measured.items() if len(record.logs) == 1)
        single = {one: self.times.estimate(one) for one in launched_once if self._works(one)}
        near = sorted(single, key=single.__getitem__)[: 2 * self.rules.finalists]
        for ordinal in near:
            if single[ordinal] < self.rules.drop_ratio * best:
                yield LaunchRequest(ordinal, 1)

    # Experiments, the fastest first, until one is kept: at most `proofs`, and only within the limit of launches.
    def _prove_all(self, ranked: Sequence[int]) -> Steps:
        for ordinal in ranked[: self.rules.proofs]:
            room = self.rules.launches * max(1.0, self._allowed / USUAL_BUDGET) - self.times.launches
            if ordinal == self.kept or not self._is_worth_keeping(ordinal) or room < self.rules.proof_launches:
                return
            self.proving = True
            proved = yield from self._prove(ordinal)
            self.proving = False
            self.verdicts.append(proved)
            if proved.decision is Decision.KEPT:
                self.kept = ordinal
                return

    def _is_worth_keeping(self, ordinal: int) -> bool:
        if not self._goes_by_mean:
            return True  # a few launches say nothing of a percentile
        return 1 - self.times.estimate(ordinal) / self.times.estimate(self.space.start) >= self.rules.minimum_gain

    def _prove_each(self) -> Steps:
        """Compare each configuration of a small space with the best before it; nothing else says which is faster.

        One that was slow at once gets a second experiment with patience: it may have been compiled, or have been cold.
        """
        self.proving = True
        for ordinal in self.space.ordinals:
            if ordinal == self.space.start or self.evaluations >= self._budget:
                continue
            proved = yield from self._prove(ordinal, 0)
            if self._is_early:
                proved = yield from self._prove(ordinal, self.rules.patience)
            self.verdicts.append(proved)
            if proved.decision is Decision.KEPT:
                self.kept = self.best = ordinal
        self.proving = False

    def _prove(self, ordinal: int, patience: int = 0) -> Generator[LaunchRequest, LaunchAnswer, Proved]:
        rules = replace(self.rules.experiment, minimum_gain=self.rules.minimum_gain, patience=patience)
        experiment = Experiment(seed=self._random.getrandbits(32), rules=rules)
        against = self.kept
        self._is_early = False
        for _ in range(self.rules.proof_launches):
            if experiment.verdict() is not None:
                break
            may_wait = experiment.at_block_boundary
            arm = experiment.next_arm()
            answer = yield LaunchRequest(ordinal if arm is Arm.CANDIDATE else against, 1, may_wait)
            if answer.times:
                experiment.record(arm, answer.times[0])
            elif answer.failed and arm is Arm.CANDIDATE:
                experiment.failed(answer.failed)
            else:
                break
        experiment.end_of_records()
        verdict = experiment.verdict()
        if verdict is None:
            return Proved(ordinal, against, Decision.INCONCLUSIVE, "the experiment was cut short", None, None)
        self._is_early = verdict.is_early
        decision, reason = self._paid_back(ordinal, verdict)
        return Proved(ordinal, against, decision, reason, verdict.ratio, verdict.interval)

    def _paid_back(self, ordinal: int, verdict: ExperimentVerdict) -> tuple[Decision, str]:
        """Return the decision and its reason, with what the candidate's first launches cost: it must be paid back."""
        first = self._first_launches.setdefault(ordinal, [])
        first += verdict.first_launches
        if not self._proves_each():  # else its first launch was one of the experiment's
            launched, start = self.times.measured[ordinal], self.times.estimate(self.space.start)
            first.append(exp(launched.logs[0] - self.times.level(launched.numbers[0])) / start)
        return paid_back(verdict, first, self._launch_seconds, self.rules.experiment)


def _survivors(racing: Sequence[int], ratios: Mapping[int, Sequence[float]]) -> list[int]:
    """Return those that are not clearly slower than the fastest: by less than three standard errors."""
    means = {ordinal: cut_mean(ratios[ordinal]) for ordinal in racing}
    errors = {ordinal: stdev(ratios[ordinal]) / sqrt(len(ratios[ordinal])) for ordinal in racing}
    best = min(racing, key=means.__getitem__, default=None)
    if best is None:
        return []
    # 1e-4: equal times, as of a recording, have no error at all.
    return [one for one in racing if means[one] - means[best] <= 3 * hypot(errors[one], errors[best]) + 1e-4]


def _no_close() -> None:
    """Close a search that has nothing to close."""
