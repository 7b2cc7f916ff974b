"""Start times of counters of the kernel or a driver: boot, or the time at which the counter was seen to fall.

A cumulative sample needs a start time (OTLP), and sysfs and NVML give none. InfiniBand and device samples ask here.
"""


class KeyedStarts:
    """Keeps the last value and the start of each counter. Only the daemon's thread uses it.

    Example: values 5, 9, 2 at times 10, 20, 30 start at boot, boot and 30.

    Args:
        boot_ns: Time of the boot, Unix nanoseconds.
    """

    def __init__(self, boot_ns: int) -> None:
        self._boot_ns = boot_ns
        self._counters: dict[tuple[str, ...], tuple[float, int]] = {}

    def __call__(self, key: tuple[str, ...], value: float, now_ns: int) -> int:
        """Return the start time of a counter with a present value, Unix nanoseconds; a fall means that it restarted."""
        before, start_ns = self._counters.get(key, (0, min(self._boot_ns, now_ns)))
        if value < before:
            start_ns = now_ns
        self._counters[key] = (value, start_ns)
        return start_ns
