"""Durations on the command line of `kernelcast backtest`: `60s`, `5m`, `24h`, `2d`, or a bare number of intervals."""

import re
from dataclasses import dataclass
from typing import Final

from kernelcast.wire.errors import ConfigurationError

SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
LONGEST_DIGITS: Final = 12
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")


@dataclass(frozen=True, slots=True)
class Duration:
    """A length of time.

    Attributes:
        amount: Seconds, or intervals.
        counted: Whether `amount` counts intervals.
    """

    amount: float
    counted: bool

    def seconds(self, interval_seconds: float) -> float:
        """Its length in seconds, for series whose interval has `interval_seconds`."""
        return self.amount * interval_seconds if self.counted else self.amount

    def intervals(self, interval_seconds: float) -> int:
        """The nearest number of intervals, at least 1."""
        return max(1, round(self.amount if self.counted else self.amount / interval_seconds))


def parse_duration(option: str, text: str) -> Duration:
    """Read a duration.

    Args:
        option: Where it was given, for the error.
        text: Such as `90s`, `1.5h`, `7d` or `12`.

    Raises:
        ConfigurationError: It is none, 0, or longer than 12 digits.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None or len(match[1]) > LONGEST_DIGITS or float(match[1]) == 0:
        raise ConfigurationError(
            f"{option} is {text!r}; write a number with s, m, h, d or w, such as 90s or 24h, or a number of intervals"
        )
    return Duration(float(match[1]) * SECONDS.get(match[2], 1.0), not match[2])
