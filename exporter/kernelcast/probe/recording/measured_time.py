"""Wall time of a process since it began to use a GPU, and the part of it in which its kernels were measured."""

from typing import NamedTuple


class Measured(NamedTuple):
    """Nanoseconds so far."""

    running_ns: int
    measured_ns: int


class MeasuredTime:
    """Sums the time in which kernels are measured. The probe's thread calls it; times are of one monotonic clock.

    >>> time = MeasuredTime()
    >>> time.begin(100)
    >>> time.switch(130, measuring=False)
    >>> time.until(150)
    Measured(running_ns=50, measured_ns=30)
    """

    def __init__(self) -> None:
        self._began_ns: int | None = None
        self._since_ns: int | None = None
        self._measured_ns = 0

    def begin(self, now_ns: int, *, measuring: bool = True) -> None:
        """Begin; only the first call has an effect."""
        if self._began_ns is None:
            self._began_ns = now_ns
            self._since_ns = now_ns if measuring else None

    def switch(self, now_ns: int, *, measuring: bool) -> None:
        """Say whether kernels are measured from now on; before `begin` without effect."""
        if self._began_ns is None or measuring == (self._since_ns is not None):
            return
        self._measured_ns = self.until(now_ns).measured_ns
        self._since_ns = now_ns if measuring else None

    def until(self, now_ns: int) -> Measured:
        """Return both totals."""
        if self._began_ns is None:
            return Measured(0, 0)
        open_ns = max(0, now_ns - self._since_ns) if self._since_ns is not None else 0
        return Measured(max(0, now_ns - self._began_ns), self._measured_ns + open_ns)
