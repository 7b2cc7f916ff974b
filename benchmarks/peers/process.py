"""Processor time and memory of another process, from /proc, and whether it is busy."""

import os
import signal
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
CPU_CLOCK: Final = 2
"""Kind of the clock that counts a process's user and system time: CPUCLOCK_SCHED in Linux's posix-timers.h."""
POLL_SECONDS: Final = 0.005
"""Interval between two readings of the processor time, the resolution of a measured time."""
WINDOW_SECONDS: Final = 0.05
"""Period over which a process is judged: its small periodic tasks, which no reader of its page waits for, last less."""
PAUSE_SECONDS: Final = 0.1
"""Longest pause within a stretch of work; what comes after a longer one belongs to it only if it fills a window."""
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


class Activity:
    """Finds the end of a stretch of work in readings of a process's processor time.

    A process works while it uses more than BUSY_RATIO of a core from one reading to the next. Its first stretch of work
    ends with a pause of PAUSE_SECONDS, and goes on with the next WINDOW_SECONDS of which it works BUSY_RATIO. Example:
    the process works until 120 ms, and for 6 ms at 1,000 ms; the end is 120 ms. If it works for 20 ms at 1,000 ms, the
    end is 1,020 ms.

    Attributes:
        busy_at: Time of the last reading at which the stretch was not yet known to have ended.
        end: Time and processor time of the end of the stretch so far.
    """

    def __init__(self, now: float, cpu_seconds: float) -> None:
        """Start with a reading: seconds of a monotonic clock, and the process's user and system time."""
        self._readings = deque([(now, cpu_seconds)])
        self._active = (now, cpu_seconds)
        self._began = False
        self.busy_at = now
        self.end = (now, cpu_seconds)

    def read(self, now: float, cpu_seconds: float) -> None:
        """Add a reading that is later than all before."""
        before, cpu_before = self._readings[-1]
        self._readings.append((now, cpu_seconds))
        while len(self._readings) > 2 and now - self._readings[1][0] >= WINDOW_SECONDS:
            self._readings.popleft()
        full = cpu_seconds - self._readings[0][1] > BUSY_RATIO * WINDOW_SECONDS
        works = cpu_seconds - cpu_before > BUSY_RATIO * (now - before)
        goes_on = works and (not self._began or before - self.end[0] < PAUSE_SECONDS)
        if works:
            self._began, self._active = True, (now, cpu_seconds)
        if full or goes_on:
            self.busy_at, self.end = now, self._active


class Watch:
    """Measures the working time and the processor time of a process from now until it is idle.

    Attributes:
        seconds: From the beginning to the end of its last stretch of work so far; at least POLL_SECONDS.
        cpu_seconds: Processor time in that period.
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._began, self._began_cpu = time.monotonic(), process.cpu_seconds()
        self._activity = Activity(self._began, self._began_cpu)
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
        called = now = time.monotonic()
        while now - max(called, self._activity.busy_at) < quiet_seconds:
            time.sleep(POLL_SECONDS)
            now = time.monotonic()
            self._activity.read(now, self._process.cpu_seconds())
            if now - self._began > timeout_seconds:
                raise TimeoutError(f"the process was still at work after {timeout_seconds} s")
        end, cpu_seconds = self._activity.end
        self.seconds = max(end - self._began, POLL_SECONDS)
        self.cpu_seconds = cpu_seconds - self._began_cpu
