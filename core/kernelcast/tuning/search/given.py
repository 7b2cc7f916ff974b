"""Adapts a search object of the user's program, which proposes configurations by name and value, to `choice.Search`."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from kernelcast.tuning.space import Space
from kernelcast.wire.errors import SpaceError

MAX_UNUSABLE: Final = 64
"""Proposals in a row that are known or not valid; after them the search is over."""


class AskTell(Protocol):
    """An object that searches. Both methods run within the program's calls or steps."""

    def ask(self) -> Mapping[str, Any] | None:
        """Return a value for each parameter; None when there is nothing more to try."""

    def tell(self, configuration: Mapping[str, Any], cost: float | None, /) -> None:
        """Take the cost of a configuration, asked for or not: its time over the start's; None if it cannot be run."""


class GivenSearch:
    """Lets an object search. Proposals that are known or not valid are answered here, and not run.

    Args:
        space: The space.
        given: The object.
    """

    def __init__(self, space: Space, given: AskTell) -> None:
        self._space = space
        self._given = given
        self._names = [parameter.name for parameter in space.parameters]
        self._costs: dict[int, float | None] = {}

    def ask(self) -> int | None:
        """Return a valid configuration that was neither asked for nor measured; None when there is no other.

        Raises:
            SpaceError: The object proposes something that is no configuration.
        """
        for _ in range(MAX_UNUSABLE):
            proposed = self._given.ask()
            if proposed is None:
                return None
            ordinal = self._ordinal(proposed)
            if ordinal is not None and ordinal not in self._costs:
                self._costs[ordinal] = None
                return ordinal
            self._given.tell(proposed, None if ordinal is None else self._costs[ordinal])
        return None

    def tell(self, ordinal: int, cost: float | None) -> None:
        """Add the cost of a configuration, asked for or not; None for one that failed."""
        self._costs[ordinal] = cost
        self._given.tell(dict(self._space.configuration(ordinal)), cost)

    def _ordinal(self, proposed: object) -> int | None:
        if not isinstance(proposed, Mapping) or set(proposed) != set(self._names):
            raise SpaceError(
                f"the search of space {self._space.name} proposes {proposed!r}; "
                f"its ask must return a mapping of {', '.join(self._names)} to values, or None"
            )
        try:
            return self._space.ordinal([proposed[name] for name in self._names])
        except SpaceError:
            return None
