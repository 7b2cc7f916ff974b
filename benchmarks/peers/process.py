"""Processor time and memory of another process, from /proc, and whether it is busy."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
CPU_CLOCK: Final = 2
"""Kind of the clock that counts a process's user and system time: CPUCLOCK_SCHED in Linux's posix-timers.h."""
POLL_SECONDS: Final = 0.05
"""Interval between two readings of the processor time."""
BUSY_RATIO: Final = 0.25
"""A process that uses more of one core than this is busy; at rest each contestant uses a few per cent."""


class Process:
    """One process by its number; its threads are included, its children are not."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._directory = Path(f"/proc/{pid}")

    def cpu_seconds(self) -> float:
        """User and system time so far, of a process that still runs."""
        return time.clock_gettime(~self._pid << 3 | CPU_CLOCK)

    def resident_bytes(self) -> int:
        """Real memory that it holds now."""
        return int((self._directory / "statm").read_text().split()[1]) * PAGE_BYTES

    def peak_bytes(self) -> int:
        """The most it has held so far."""
        for line in (self._directory / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise OSError(f"no VmHWM of process {self._pid}")

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop it for a while, as a debugger does, so that work can pile up; it goes on when the block ends."""
        os.kill(self._pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._pid, signal.SIGCONT)


class Watch:
    """Measures the working time and the processor time of a process from now until it is idle.

    Attributes:
        seconds: From the beginning to the end of its last stretch of work so far; at least POLL_SECONDS.
        cpu_seconds: Processor time in that period.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._began = self._polled = time.monotonic()
        self._began_cpu = self._seen_cpu = process.cpu_seconds()
        self.seconds = POLL_SECONDS
        self.cpu_seconds = 0.0

    def until_rest(self, *, quiet_seconds: float, timeout_seconds: float) -> None:
        """Return once it has been at rest for a while.

        Args:
            quiet_seconds: How long it must rest; longer than any pause that it makes on its own.
            timeout_seconds: When to give up, counted from the beginning of the watch.

        Raises:
            TimeoutError: It was still at work.
        """
        busy_at = time.monotonic()
        while self._polled - busy_at < quiet_seconds:
            time.sleep(POLL_SECONDS)
            now, cpu = time.monotonic(), self._process.cpu_seconds()
            if cpu - self._seen_cpu > BUSY_RATIO * (now - self._polled):
                busy_at = now
                self.seconds, self.cpu_seconds = now - self._began, cpu - self._began_cpu
            self._seen_cpu, self._polled = cpu, now
            if now - self._began > timeout_seconds:
                raise TimeoutError(f"the process was still at work after {timeout_seconds} s")
