"""Optuna's samplers as a search: `pip install 'kernelcast[optuna]'`.

`choice` imports it for `--search optuna`.

Optuna knows neither restrictions nor that a configuration is measured once. So a proposal that is not valid, or is
known already, is replaced by the nearest one that is neither, and its result is added as if Optuna had proposed it.
"""

from collections.abc import Sequence
from importlib import import_module
from itertools import islice
from random import Random
from typing import Any, Final

from kernelcast.tuning.space import Space
from kernelcast.wire.errors import ConfigurationError

FAILED_FACTOR: Final = 2.0
"""A failing configuration counts as this many times the highest cost: Optuna leaves failed trials out of its model."""
NEAREST_OF: Final = 256
"""Configurations from which the nearest one is chosen where no neighbour is left."""


def required() -> Any:
    """Import Optuna.

    Raises:
        ConfigurationError: It is not installed.
    """
    try:
        return import_module("optuna")
    except ImportError as error:
        raise ConfigurationError(f"Optuna cannot be imported: {error}; pip install 'kernelcast[optuna]'") from error


class OptunaSearch:
    """A study of Optuna by ask and tell. For one thread.

    Args:
        space: The space.
        seed: Of all random choices.
        seeds: Configurations to begin with, best first.
        sampler: A sampler of Optuna; None takes `TPESampler`.

    Raises:
        ConfigurationError: Optuna is not installed.
    """

    def __init__(self, space: Space, *, seed: int, seeds: Sequence[int] = (), sampler: Any = None) -> None:
        self._optuna = required()
        self._optuna.logging.set_verbosity(self._optuna.logging.WARNING)
        self._space = space
        self._random = Random(f"optuna {seed}")
        self._seeds = list(dict.fromkeys((space.start, *seeds)))[::-1]
        self._known: set[int] = set()
        self._highest = 1.0
        made = self._optuna.distributions
        # An ordered parameter is the place of its value; only texts have no order.
        self._distributions = {
            parameter.name: made.CategoricalDistribution(tuple(range(len(parameter.values))))
            if any(isinstance(value, str) for value in parameter.values)
            else made.IntDistribution(0, len(parameter.values) - 1)
            for parameter in space.parameters
        }
        chosen = sampler or self._optuna.samplers.TPESampler(seed=seed)
        self._study = self._optuna.create_study(sampler=chosen, direction="minimize")

    def ask(self) -> int | None:
        """Return a valid configuration that was neither asked for nor measured; None when there is no other."""
        while self._seeds:
            ordinal = self._seeds.pop()
            if ordinal not in self._known:
                self._known.add(ordinal)
                return ordinal
        if len(self._known) >= len(self._space):
            return None
        trial = self._study.ask(self._distributions)
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)  # its result is added by `tell`
        places = [trial.params[parameter.name] for parameter in self._space.parameters]
        ordinal = self._nearest(places)
        self._known.add(ordinal)
        return ordinal

    def tell(self, ordinal: int, cost: float | None) -> None:
        """Add the cost of a configuration, asked for or not; None for one that failed."""
        self._known.add(ordinal)
        if cost is not None:
            self._highest = max(self._highest, cost)
        value = FAILED_FACTOR * self._highest if cost is None else cost
        names = (parameter.name for parameter in self._space.parameters)
        params = dict(zip(names, self._space.places(ordinal), strict=True))
        made = self._optuna.trial.create_trial(params=params, distributions=self._distributions, value=value)
        self._study.add_trial(made)

    def _nearest(self, places: Sequence[int]) -> int:
        space, known = self._space, self._known
        proposed = sum(stride * place for stride, place in zip(space.strides, places, strict=True))
        if proposed in space and proposed not in known:
            return proposed
        fresh = [other for other in space.neighbours(proposed) if other not in known]
        if not fresh:
            drawn = (space.ordinals[self._random.randrange(len(space))] for _ in range(4 * NEAREST_OF))
            fresh = list(islice((other for other in drawn if other not in known), NEAREST_OF))
        fresh = fresh or [other for other in space.ordinals if other not in known]
        return min(fresh, key=lambda other: (self._distance(places, other), self._random.random()))

    def _distance(self, places: Sequence[int], ordinal: int) -> float:
        parts = zip(places, self._space.places(ordinal), self._space.counts, strict=True)
        return sum(abs(one - other) / max(1, count - 1) for one, other, count in parts)
