"""Budget of pages: the number of pages that the fleet may send in any 24 hours. `Alarms` spends it."""

from dataclasses import dataclass, field
from typing import Final

DAY_NS: Final = 24 * 3600 * 1_000_000_000
AHEAD_NS: Final = 15 * 60 * 1_000_000_000
"""Pages with a later time than this from now do not count: another predictor's hosts had a clock that was ahead."""


@dataclass(slots=True)
class PageBudget:
    """Times of the pages of the last 24 hours, of this predictor and of others; protected by the lock of its owner.

    Attributes:
        pages_per_day: The budget.
        paged_ns: When each finding was paged, by its id.
    """

    pages_per_day: int
    paged_ns: dict[str, int] = field(default_factory=dict)

    def left(self, time_ns: int) -> int:
        """Number of pages that may still be sent at this time."""
        # While this predictor reads a backlog, the pages of the last hours are ahead of it: they count later.
        self.paged_ns = {each: when_ns for each, when_ns in self.paged_ns.items() if abs(when_ns - time_ns) < DAY_NS}
        spent = sum(when_ns <= time_ns + AHEAD_NS for when_ns in self.paged_ns.values())
        return max(self.pages_per_day - spent, 0)

    def set_back(self, time_ns: int) -> None:
        """Move all later times to this one: the hosts' clocks were ahead and have been set back."""
        self.paged_ns = {each: min(when_ns, time_ns) for each, when_ns in self.paged_ns.items()}

    def spend(self, finding_id: str, time_ns: int) -> None:
        """Record a page; the same finding counts once."""
        self.paged_ns.setdefault(finding_id, time_ns)
