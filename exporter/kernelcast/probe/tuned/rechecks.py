"""When a kept value is compared again with the value that it has replaced, its start.

The one schedule of such checks: `ShapeBucket` has a `Recheck` of calls and steps, `KeptValues` of the tunables of a
process, and `Leader` of what all ranks have kept.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp, inf
from typing import Final

from kernelcast.probe.tuned.confirmation import LatePair
from kernelcast.tuning.journal import KeptConfiguration

RECHECK_SECONDS: Final = 3600.0
FIRST_STAY: Final = 256
LONGEST_STAY: Final = 2000
"""Launches of a stay on the kept configuration before a `LatePair`: first, and in the end."""
PAIRS: Final = 4
"""Pairs for each length of stay; all must say that the kept configuration is slower."""
SLOWER: Final = 0.01
"""Difference of log times above which a pair says so."""
AN_HOUR: Final = "an hour has passed"
ANOTHER_DRIVER: Final = "it was kept with driver {}, and this is {}"


@dataclass(slots=True)
class Recheck:
    """Schedule of the checks of one kept value. Times are seconds of the caller's clock.

    Attributes:
        due_at: Time of the next check; infinite if there is none.
        reason: Why it is checked then.
        stay_launches: Launches of the stay before the next `LatePair`; 0 for none.
        start_level: Time of the start in the last `LatePair`; 0 before one.
    """

    due_at: float = inf
    reason: str = AN_HOUR
    stay_launches: int = 0
    start_level: float = 0.0
    _hour_at: float = inf
    _checked_at: float = -inf
    _differences: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, now: float, last: KeptConfiguration | None = None, driver: str = "") -> "Recheck":
        """Return the schedule of a value: one check when it is an hour old, or at once after a change of the driver.

        Args:
            now: Unix seconds, or those of another clock without `last`.
            last: The last verdict about a value that an earlier run has kept; None for one that is kept now.
            driver: Version of the present driver.
        """
        if last is not None and last.driver != driver:
            return cls(now, ANOTHER_DRIVER.format(last.driver or "unknown", driver or "unknown"))
        # The clock that has written `last.time` may have been ahead.
        age = max(0.0, now - last.time) if last is not None else 0.0
        hour_at = now + max(0.0, RECHECK_SECONDS - age)
        return cls(hour_at, _hour_at=hour_at)

    def is_due(self, clock: Callable[[], float]) -> bool:
        """Whether to check now. Every call of the program asks; the clock is read only while a check is to come."""
        return self.due_at < inf and clock() >= self.due_at

    def bring_forward(self, now: float, reason: str) -> None:
        """Check now for another reason, unless the value was checked less than an hour ago."""
        if self.due_at < inf or now - self._checked_at >= RECHECK_SECONDS:
            self.due_at, self.reason = now, reason

    def checked(self, now: float, *, outside: bool) -> None:
        """Note the end of a check; one that an order or an error has ended is repeated after an hour."""
        self._checked_at, self.reason = now, AN_HOUR
        self.due_at = self._hour_at = now + RECHECK_SECONDS if outside else inf

    def begin_stays(self, now: float, launch_seconds: float) -> None:
        """Check by a `LatePair` after each long stay, too.

        Args:
            now: The time.
            launch_seconds: Usual time of a launch; 0 if it is not known.
        """
        self.stay_launches = FIRST_STAY
        self._await_stay(now, launch_seconds)

    def is_for_pair(self, now: float) -> bool:
        """Whether the check that is due follows a long stay."""
        return self.stay_launches > 0 and now < self._hour_at

    def paired(self, pair: LatePair, now: float, launch_seconds: float) -> str:
        """Use the result of a `LatePair`, and schedule the next one.

        Returns:
            The reason to take the value back: it is slower in each of some pairs; empty without one.
        """
        self.start_level = pair.start_level
        if pair.difference is not None:
            self._differences.append(pair.difference)
        if len(self._differences) == PAIRS:
            slower, self._differences = self._differences, []
            if min(slower) > SLOWER:
                return (
                    f"after {self.stay_launches} launches in a row it is {exp(min(slower)):.3f} times the start or more"
                )
            self.stay_launches = 0 if self.stay_launches >= LONGEST_STAY else min(2 * self.stay_launches, LONGEST_STAY)
        self._await_stay(now, launch_seconds)
        return ""

    def _await_stay(self, now: float, launch_seconds: float) -> None:
        late_at = now + self.stay_launches * launch_seconds if self.stay_launches and launch_seconds else inf
        self.due_at = min(self._hour_at, late_at)
