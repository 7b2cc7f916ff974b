"""Two types that rooms share: the searches of a process, and a space that all ranks of a job search together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kernelcast.tuning.campaign import Campaign
from kernelcast.wire.tuning.experience import Experience


class FunctionSearches(Protocol):
    """The searches of a decorated function."""

    def close(self, reason: str) -> None:
        """End them."""

    def learn(self, experience: Experience) -> None:
        """Use what other nodes have found."""


@dataclass(frozen=True, slots=True)
class CollectiveSpace:
    """A collective space as its ranks search it, or a collective tunable whose kept value they check again.

    Attributes:
        name: Its name, and that of its tunable.
        start: The configuration of the untuned program, as text; of a tunable, the value before the kept one.
        share: Share of the time that the search may cost; None for that of the process.
        campaign: Makes a campaign without experiments; None for a tunable, which is not searched.
        text: Returns a configuration as text.
    """

    name: str
    start: str
    share: float | None = 0.0
    campaign: Callable[[], Campaign] | None = None
    text: Callable[[int], str] = str
