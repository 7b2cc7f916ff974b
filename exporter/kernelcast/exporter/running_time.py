"""Time that passes from interval to interval, whatever happens to the node's clock."""


class RunningTime:
    """Nanoseconds that have passed, by the times of intervals; they never fall. One thread uses it.

    Points have the time of the node's clock. How long something lasts is measured by running time. An interval in which
    the clock is set back is as long as the one before it. One in which it is set forward cannot be told from one in
    which the node was suspended, so it is as long as the clock says.

    Attributes:
        ns: The running time of the last interval; at the first one it is the clock's.
        ahead_ns: How far that is ahead of the clock's time.

    >>> time = RunningTime()
    >>> [time.at(clock_ns) for clock_ns in (7_200, 7_210, 3_600, 3_610)]
    [7200, 7210, 7220, 7230]
    >>> time.ahead_ns
    3620
    """

    def __init__(self) -> None:
        self.ns = 0
        self.ahead_ns = 0
        self._interval_ns = 0
        self._clock_ns: int | None = None

    def at(self, clock_ns: int) -> int:
        """Return the running time of the interval with this time of the node's clock, Unix nanoseconds."""
        if self._clock_ns is None:
            self.ns = clock_ns
        elif clock_ns != self._clock_ns:
            if clock_ns > self._clock_ns:
                self._interval_ns = clock_ns - self._clock_ns
            self.ns += self._interval_ns
        self._clock_ns, self.ahead_ns = clock_ns, self.ns - clock_ns
        return self.ns
