"""The search that a program chooses for a space: by name, by an object, or by a function that makes one."""

from typing import Any

from kernelcast.tuning.search import GivenSearch, Search, SearchMaker, search_for, search_maker
from kernelcast.tuning.space import Space
from kernelcast.wire.errors import SpaceError


class ChosenSearch:
    """Makes the search of each campaign of a space.

    Args:
        space: Name of the space.
        chosen: `own`, `optuna`, `kernel-tuner` or the name of an entry point; a `SearchMaker`; or an object with `ask`
            and `tell`, as `AskTell` has them, which searches once.
        budget: Configurations that a campaign can measure.

    Raises:
        SpaceError: It is none of these.
        ConfigurationError: There is no search with this name, or its package is not installed.
    """

    def __init__(self, space: str, chosen: Any, budget: int) -> None:
        self._space = space
        self._budget = budget
        self._maker: SearchMaker | None = None
        self._object: Any = None
        self._searches_once = self._is_used = False
        if isinstance(chosen, str):
            self._maker = search_maker(chosen, budget=budget)
        elif isinstance(chosen, type) or (callable(chosen) and not _asks(chosen)):
            self._maker = chosen
        elif _asks(chosen):
            self._object, self._searches_once = chosen, True
        else:
            raise SpaceError(
                f"space {space} has the search {chosen!r}; it must be a name, an object with ask and tell, or a "
                "function that makes one"
            )

    def used(self, *, by_shape: bool) -> None:
        """Note that a decorated function searches the space.

        Raises:
            SpaceError: An object, which can search once, would have to search several times.
        """
        if self._searches_once and (by_shape or self._is_used):
            raise SpaceError(
                f"space {self._space} has an object as its search, which can do one search; here each function and "
                "each shape is searched by itself; pass a function that makes one: search(space, seed=, seeds=)"
            )
        self._is_used = True

    def made(self, space: Space, seed: int) -> Search:
        """Make the search of a campaign; where an object has searched already, the project's own one goes on."""
        if self._maker is not None:
            return self._maker(space, seed=seed)
        given, self._object = self._object, None
        return search_for(space, seed=seed, budget=self._budget) if given is None else GivenSearch(space, given)


def _asks(chosen: Any) -> bool:
    return callable(getattr(chosen, "ask", None)) and callable(getattr(chosen, "tell", None))
