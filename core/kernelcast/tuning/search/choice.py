"""Chooses the search that suits a space and a budget, or that has a name; campaigns and commands call it."""

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Final, Protocol

from kernelcast.tuning.search.guided import GuidedSearch
from kernelcast.tuning.search.sweep import Sweep
from kernelcast.tuning.space import Space
from kernelcast.wire.errors import ConfigurationError

SWEEP_LIMIT: Final = 200
"""Most valid configurations that are all measured."""
MAX_SIMILARITIES: Final = 1 << 16
"""Pairs of values of one parameter, in all, that the guided search's model may hold: one parameter of 256 values.

The program waits for each suggestion, whose time is proportional to them: here 40 ms."""

OWN: Final = "own"
EXTRAS: Final = MappingProxyType(
    {
        "optuna": "kernelcast.tuning.search.optuna_search:OptunaSearch",
        "kernel-tuner": "kernelcast.tuning.search.kernel_tuner_search:KernelTunerSearch",
    }
)
"""Searches that an extra of kernelcast installs."""

SEARCHES: Final = "kernelcast.searches"
"""Group of entry points: each is a `SearchMaker`."""


class Search(Protocol):
    """Proposes configurations and learns from their costs."""

    def ask(self) -> int | None:
        """Return a valid configuration that was neither asked for nor measured; None when there is no other."""

    def tell(self, ordinal: int, cost: float | None) -> None:
        """Add the cost of a configuration, asked for or not; None for one that failed."""


class SearchMaker(Protocol):
    """A class or function that makes a search."""

    def __call__(self, space: Space, *, seed: int, seeds: Sequence[int] = ()) -> Search:
        """Make a search.

        Args:
            space: The space.
            seed: Determines all random choices.
            seeds: Configurations to begin with, best first.
        """


def search_for(space: Space, *, seed: int, budget: int, seeds: Sequence[int] = ()) -> Search:
    """Return a sweep for a small space within the budget, and for one with too many values; else a guided search.

    Args:
        space: The space.
        seed: Determines all random choices.
        budget: Configurations that can be measured.
        seeds: Configurations to begin with, best first.
    """
    if len(space) <= min(SWEEP_LIMIT, budget) or sum(count * count for count in space.counts) > MAX_SIMILARITIES:
        return Sweep(space, seed=seed, seeds=seeds)
    return GuidedSearch(space, seed=seed, seeds=seeds)


def search_maker(name: str, *, budget: int) -> SearchMaker:
    """Return what makes the search with a name, and import its package.

    Args:
        name: `own`, `optuna`, `kernel-tuner`, or the name of another package's entry point.
        budget: Configurations that can be measured.

    Raises:
        ConfigurationError: There is no such search, or its package cannot be imported.
    """
    if name == OWN:
        return partial(search_for, budget=budget)
    if name in EXTRAS:
        module_name, _, attribute = EXTRAS[name].partition(":")
        module = import_module(module_name)
        module.required()
        made: SearchMaker = getattr(module, attribute)
        return made
    found = {one.name: one for one in entry_points(group=SEARCHES)}
    if name not in found:
        known = ", ".join((OWN, *EXTRAS, *sorted(found)))
        raise ConfigurationError(f"there is no search {name!r}; there are {known}; install the package that has it")
    try:
        maker: SearchMaker = found[name].load()
    except Exception as error:
        raise ConfigurationError(f"the search {name!r} cannot be imported: {error}; repair its package") from error
    return maker


def named_search(name: str, space: Space, *, seed: int, budget: int, seeds: Sequence[int] = ()) -> Search:
    """Return the search with a name; the arguments are those of `search_maker` and of a `SearchMaker`.

    Raises:
        ConfigurationError: There is no such search, or its package is not installed.
    """
    return search_maker(name, budget=budget)(space, seed=seed, seeds=seeds)
