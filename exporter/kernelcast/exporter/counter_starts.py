"""Start times of counters that have none: boot or the first reading, or the time at which the counter was seen to fall.

A cumulative sample needs a start time (OTLP); sysfs and NVML give none, TPU runtimes sometimes none.
"""

import sys
from collections.abc import Hashable
from typing import Final

MAX_COUNTERS: Final = 16_384
"""Counters that are kept; the one that was not read for longest is forgotten first. A node has some hundreds."""


class KeyedStarts:
    """Keeps the last value and the start of the newest counters. Only the daemon's thread uses it.

    Example: values 5, 9, 2 at times 10, 20, 30 start at boot, boot and 30.

    Args:
        boot_ns: Time of the boot, Unix nanoseconds; without it a counter starts at its first reading.
    """

    def __init__(self, boot_ns: int = sys.maxsize) -> None:
        self._boot_ns = boot_ns
        self._counters: dict[Hashable, tuple[float, int]] = {}

    def __call__(self, key: Hashable, value: float, now_ns: int) -> int:
        """Return the start time of a counter with a present value, Unix nanoseconds; a fall means that it restarted."""
        before, start_ns = self._counters.pop(key, (0, min(self._boot_ns, now_ns)))
        if value < before:
            start_ns = now_ns
        self._counters[key] = (value, start_ns)
        if len(self._counters) > MAX_COUNTERS:
            del self._counters[next(iter(self._counters))]
        return start_ns
