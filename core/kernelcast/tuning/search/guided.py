"""Search of a large space: local and evolutionary moves, chosen by a model.

Candidates are neighbours of the best configurations, neighbours of the best one for each value of a parameter with
few values (a *niche*), and random ones. A Gaussian process predicts their times, a logistic regression whether they
fail. The search asks for the candidate with the largest expected improvement, reduced by its expected slowdown and
its probability of failing (`candidates.CandidatePool`). It never asks for a configuration twice or for an invalid
one.
"""

from collections.abc import Sequence
from math import inf, log
from random import Random
from typing import Final

from kernelcast.tuning.search.candidates import Acquisition, CandidatePool
from kernelcast.tuning.search.failing import Failing
from kernelcast.tuning.search.settings import Settings
from kernelcast.tuning.search.similarity import Similarity, similarity_of
from kernelcast.tuning.search.surrogate import Surrogate
from kernelcast.tuning.search.weights import WeightLearner
from kernelcast.tuning.space import Space

SPREAD_TRIALS: Final = 20
"""Random configurations of which the least similar is chosen, at the start."""
REBUILD_SHARE: Final = 4
"""The model is built again after a fourth of its observations is new, at the earliest."""
UNHELPFUL_SEEDS: Final = 2
"""Seeds in a row without an improvement, after which the others are dropped."""
WITHHELD_UNTIL: Final = 100
"""Observations after which the model learns the results of other devices' configurations."""


class GuidedSearch:
    """Asks for one configuration after the other; the same seed and answers give the same questions. For one thread.

    Args:
        space: The space.
        seed: Determines all random choices.
        seeds: Configurations to begin with, best first; dropped after two in a row that were no improvement.
        settings: Settings.
    """

    def __init__(self, space: Space, *, seed: int, seeds: Sequence[int] = (), settings: Settings | None = None) -> None:
        self._space = space
        self._settings = settings or Settings()
        self._random = Random(f"search {seed}")
        self._similarity = Similarity(space)
        self._surrogate = Surrogate(self._similarity)
        self._failing = Failing(space, self._similarity.columns, seed=seed)
        self._candidates = CandidatePool(
            space, self._similarity, self._surrogate, self._failing, settings=self._settings, random=self._random
        )
        self._learner = WeightLearner(self._similarity, settings=self._settings, random=self._random)
        self._seeds = [one for one in dict.fromkeys(seeds) if one != space.start]
        self._unhelpful = 0
        self._best_seed = inf
        self._asked_seeds: set[int] = set()
        self._withheld: dict[int, float | None] = {}
        self._seen: set[int] = set()
        self._observed: dict[int, float | None] = {}
        self._logs: dict[int, float] = {}
        self._places: dict[int, tuple[int, ...]] = {}
        self._solved: dict[int, list[float]] = {}
        # By column and place of a parameter with few values: the fastest configuration with that value.
        self._niches: dict[tuple[int, int], int] = {}
        self._best = inf
        self._failing_log_time = 0.0
        self._turn = 0
        self._switches = [
            column for column in self._similarity.columns if space.counts[column] <= self._settings.switch_values
        ]
        self._weights_changed = False
        self._since_rebuild = 0

    def ask(self) -> int | None:
        """Return a valid configuration that was neither asked for nor measured; None when there is no other."""
        if len(self._seen) >= len(self._space):
            return None
        ordinal = self._next()
        self._seen.add(ordinal)
        candidate = self._candidates.discard(ordinal)
        if candidate is not None:
            self._solved[ordinal] = candidate.solved
        return ordinal

    def tell(self, ordinal: int, cost: float | None) -> None:
        """Add the cost of a configuration, asked for or not; None for one that failed."""
        if ordinal in self._asked_seeds:
            self._withhold(ordinal, cost)
            return
        if self._withheld and len(self._observed) >= WITHHELD_UNTIL:
            withheld, self._withheld = self._withheld, {}
            for seed, value in withheld.items():
                self.tell(seed, value)
        self._seen.add(ordinal)
        self._candidates.discard(ordinal)
        solved = self._solved.pop(ordinal, None)
        places = self._places[ordinal] = self._similarity.project(self._space.places(ordinal))
        self._observed[ordinal] = cost
        self._failing.add(places, failed=cost is None)
        if cost is not None:
            self._record_time(ordinal, places, log(cost))
        if len(self._observed) < self._settings.spread or not self._logs:
            return
        self._weights_changed |= self._learner.improve(self._logs, self._places)
        self._since_rebuild += 1
        if self._must_rebuild():
            self._rebuild()
        else:
            self._add(ordinal, solved)

    def _withhold(self, ordinal: int, cost: float | None) -> None:
        """Keep the result of another device's configuration from the model for a time.

        Where the devices differ, a model that begins with a good local optimum does not leave it. Without that result
        the search is as good as one without seeds, and the campaign still has the seed's time.
        """
        self._asked_seeds.discard(ordinal)
        self._withheld[ordinal] = cost
        value = inf if cost is None else log(cost)
        self._unhelpful = 0 if value < min(self._best, self._best_seed) else self._unhelpful + 1
        self._best_seed = min(self._best_seed, value)

    def _record_time(self, ordinal: int, places: tuple[int, ...], value: float) -> None:
        self._logs[ordinal] = value
        self._best = min(self._best, value)
        for column, place in enumerate(places):
            if self._space.counts[self._similarity.columns[column]] <= self._settings.niche_values:
                holder = self._niches.get((column, place))
                if holder is None or self._logs[holder] > value:
                    self._niches[column, place] = ordinal

    def _next(self) -> int:
        if self._space.start not in self._seen:
            return self._space.start
        while self._seeds and self._unhelpful < UNHELPFUL_SEEDS:
            ordinal = self._seeds.pop(0)
            if ordinal not in self._seen:
                self._asked_seeds.add(ordinal)
                return ordinal
        self._seeds.clear()
        if len(self._observed) < self._settings.spread or not self._logs:
            return self._least_similar()
        self._turn += 1
        if (switched := self._switched()) is not None:
            return switched
        self._candidates.admit_random(self._seen)
        coefficients = self._surrogate.coefficients()
        for elite in self._elites():
            self._candidates.admit_neighbours(elite, coefficients, self._seen)
        return self._candidates.best(self._acquisition())

    def _least_similar(self) -> int:
        """Return, of some random configurations, the one least similar to all that were measured."""
        tables = self._similarity.tables()
        found = []
        for _ in range(SPREAD_TRIALS):
            ordinal = self._candidates.fresh(self._seen)
            places = self._similarity.project(self._space.places(ordinal))
            near = max((similarity_of(tables, places, other) for other in self._places.values()), default=0.0)
            found.append((near, ordinal))
        return min(found)[1]

    def _elites(self) -> list[int]:
        """Return two configurations whose neighbours become candidates: one of the best, and the best of a niche."""
        ranked = sorted(self._logs, key=self._logs.__getitem__)[: self._settings.elites]
        one = ranked[0] if self._turn % 2 else ranked[self._turn // 2 % len(ranked)]
        niches = list(self._niches.values()) or ranked
        return [one, niches[self._turn % len(niches)]]

    def _switched(self) -> int | None:
        """Return a good configuration with one switch changed, at every fifth turn.

        A switch such as "use shared memory" often separates two regions with optima of their own. A model that knows
        the other region by slow configurations alone would not enter it.
        """
        settings = self._settings
        if self._turn % settings.switch_every or not self._switches:
            return None
        column = self._switches[self._turn // settings.switch_every % len(self._switches)]
        ranked = sorted(self._logs, key=self._logs.__getitem__)[: 4 * settings.switched]
        elites = self._random.sample(ranked, min(settings.switched, len(ranked)))
        acquisition = Acquisition(self._best, 0.0, self._settings.failing_cost)
        return self._candidates.best_switched(elites, column, acquisition, self._seen)

    def _acquisition(self) -> Acquisition:
        settings = self._settings
        share = min(len(self._observed) / settings.late, 1.0)
        if self._turn % settings.explore_every == 0:
            exposure = settings.exposure
        else:
            exposure = settings.exposure + share * (settings.late_exposure - settings.exposure)
        return Acquisition(self._best, exposure, settings.failing_cost)

    def _must_rebuild(self) -> bool:
        count = len(self._surrogate.points)
        due = self._since_rebuild >= max(6, count // REBUILD_SHARE)
        return not count or (due and (self._weights_changed or count >= self._settings.points))

    def _rebuild(self) -> None:
        logs = sorted(self._logs.values())
        self._failing_log_time = logs[int(self._settings.failing_quantile * (len(logs) - 1))]
        if self._surrogate.points:
            self._candidates.shrink(self._acquisition())
        self._solved.clear()
        self._surrogate.clear()
        for ordinal in self._points():
            self._add(ordinal)
        self._weights_changed = False
        self._since_rebuild = 0

    def _add(self, ordinal: int, solved: list[float] | None = None) -> None:
        value = self._logs.get(ordinal, self._failing_log_time)
        self._surrogate.add(self._places[ordinal], value, candidates=self._candidates.current(), solved=solved)

    def _points(self) -> list[int]:
        """Return the observations that the model holds: of too many, the best, the newest and some of the others."""
        every = list(self._observed)
        limit = self._settings.points * 4 // 5
        if len(every) <= limit:
            return every
        ranked = sorted(every, key=lambda ordinal: self._logs.get(ordinal, inf))
        kept = {*ranked[: limit // 2], *every[-limit // 6 :]}
        others = [ordinal for ordinal in every if ordinal not in kept]
        kept.update(self._random.sample(others, limit - len(kept)))
        return [ordinal for ordinal in every if ordinal in kept]
