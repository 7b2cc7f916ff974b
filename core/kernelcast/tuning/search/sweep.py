"""Search of a small space: every valid configuration once, in random order."""

from collections.abc import Sequence
from random import Random

from kernelcast.tuning.space import Space


class Sweep:
    """Asks for the start, the seeds, then all other configurations. For one thread."""

    def __init__(self, space: Space, *, seed: int, seeds: Sequence[int] = ()) -> None:
        others = list(space.ordinals)
        Random(seed).shuffle(others)
        self._waiting = list(dict.fromkeys((space.start, *seeds, *others)))[::-1]
        self._seen: set[int] = set()

    def ask(self) -> int | None:
        """Return the next configuration; None when there is no other."""
        while self._waiting:
            ordinal = self._waiting.pop()
            if ordinal not in self._seen:
                self._seen.add(ordinal)
                return ordinal
        return None

    def tell(self, ordinal: int, cost: float | None) -> None:  # noqa: ARG002  the order does not depend on it
        """Take note of a configuration that was measured."""
        self._seen.add(ordinal)
