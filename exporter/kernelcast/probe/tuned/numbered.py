"""Implements `terms.Configurations`: the configurations of a space by number, their texts, and campaigns."""

import json
import zlib
from typing import Any, Final

from kernelcast.probe.tuned.searches import ChosenSearch
from kernelcast.probe.tuned.terms import CallCampaign
from kernelcast.tuning.campaign import Campaign as ConfigurationCampaign
from kernelcast.tuning.campaign import CampaignRules
from kernelcast.tuning.space import Space

BUDGET: Final = 200
"""Most different configurations that one campaign measures."""


class Numbered:
    """The usual form.

    Args:
        space: The space.
        rank: The rank, because each rank searches in its own order.
        searches: The chosen search.
        rules: Limits of a campaign.
    """

    def __init__(
        self,
        space: Space,
        rank: str,
        searches: ChosenSearch | None = None,
        rules: CampaignRules | None = None,
    ) -> None:
        self._space = space
        self._rank = rank
        self._searches = searches
        self._rules = rules
        self.start = space.start
        self.configuration = space.configuration

    def text(self, ordinal: int) -> str:
        """Return a configuration as text."""
        return json.dumps(list(self._space.values(ordinal)), separators=(",", ":"))

    def find(self, text: str) -> int | None:
        """Return the number of a configuration; None if the space has it no more."""
        try:
            return self._space.ordinal(json.loads(text))
        except Exception:  # noqa: BLE001  another space, or values that it has no more
            return None

    def campaign(self, name: str) -> CallCampaign:
        """Make a campaign for a space and shape."""
        seed = zlib.crc32(f"{name} {self._rank}".encode())
        search = self._searches.made(self._space, seed) if self._searches else None
        return ConfigurationCampaign(self._space, seed=seed, budget=self._budget(), search=search, rules=self._rules)

    def _budget(self) -> int:
        return BUDGET


class Approved(Numbered):
    """Configurations whose texts are the values of the announced tunable, and campaigns of a bounded number of them."""

    def __init__(
        self, space: Space, rank: str, searches: ChosenSearch | None, rules: CampaignRules, limit: int
    ) -> None:
        super().__init__(space, rank, searches, rules)
        self._limit = limit

    def text(self, ordinal: int) -> str:
        """Return a configuration as text."""
        return shown(self._space.configuration(ordinal), self._space)

    def find(self, text: str) -> int | None:
        """Return the number of a configuration; None if the space has it no more."""
        return next((ordinal for ordinal in self._space.ordinals if self.text(ordinal) == text), None)

    def _budget(self) -> int:
        left, self._limit = self._limit, 0  # one that is searched again after it was taken back has none left
        return min(left, BUDGET) + 1  # the start counts, too


class Resting(Numbered):
    """The start only, where no probe runs."""

    def __init__(self, space: Space) -> None:
        super().__init__(space, "")

    def campaign(self, name: str) -> CallCampaign:
        """Make a campaign for a space and shape."""
        del name
        return _NoCampaign(self._space.start)


class _NoCampaign:
    """A campaign that wants nothing."""

    def __init__(self, start: int) -> None:
        self.kept = start

    def next(self) -> None:
        """Nothing is to be run."""

    def measured(self, times: list[float]) -> None:
        """Nothing was asked for."""

    def failed(self, reason: str) -> None:
        """Nothing was asked for."""

    def refused(self, reason: str) -> None:
        """Nothing was asked for."""


def shown(configuration: Any, space: Space) -> str:
    """Return a configuration as the value of a tunable."""
    return " ".join(f"{one.name}={configuration[one.name]}" for one in space.parameters)
