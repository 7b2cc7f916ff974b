"""Wall time of a process since it began to use a GPU, and the parts of it in which kernels and waits were measured."""

from typing import NamedTuple


class Measured(NamedTuple):
    """Nanoseconds so far."""

    running_ns: int
    measured_ns: int
    waits_measured_ns: int


class MeasuredTime:
    """Sums the times in which kernels, and waits, are measured. Times are of one monotonic clock.

    The probe's thread calls it.

    >>> time = MeasuredTime()
    >>> time.begin(100)
    >>> time.switch(130, measuring=False, waits=True)
    >>> time.until(150)
    Measured(running_ns=50, measured_ns=30, waits_measured_ns=50)
    """

    def __init__(self) -> None:
        self._began_ns: int | None = None
        self._switched_ns = 0
        self._kernels = self._waits = False
        self._sums = Measured(0, 0, 0)

    def begin(self, now_ns: int, *, measuring: bool = True) -> None:
        """Begin; only the first call has an effect."""
        if self._began_ns is None:
            self._kernels = self._waits = measuring
            self._switched_ns = self._began_ns = now_ns

    def switch(self, now_ns: int, *, measuring: bool, waits: bool) -> None:
        """Say whether kernels and waits are measured from now on; before `begin` without effect."""
        if self._began_ns is None:
            return
        self._sums = self.until(now_ns)
        self._switched_ns = max(now_ns, self._switched_ns)
        self._kernels, self._waits = measuring, waits

    def until(self, now_ns: int) -> Measured:
        """Return the three totals."""
        if self._began_ns is None:
            return Measured(0, 0, 0)
        open_ns = max(0, now_ns - self._switched_ns)
        _, kernels_ns, waits_ns = self._sums
        return Measured(
            max(0, now_ns - self._began_ns), kernels_ns + self._kernels * open_ns, waits_ns + self._waits * open_ns
        )
