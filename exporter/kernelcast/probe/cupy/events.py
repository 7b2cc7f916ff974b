"""Sampled launches timed by CUDA events: recorded on the launch's own stream, read later by the probe's thread.

Nothing here waits for the device. Events are made in advance, per device; a launch that finds none is not timed. The
probe's thread asks each end event whether it is done and never synchronises.

Two traps. CUDA's runtime makes a context on device 0 for a thread that has none, so the thread first sets the device of
the events it asks about, whose context exists. And asking for an event while another thread captures a graph in global
mode would break that capture, unless this thread is in relaxed mode (cuThreadExchangeStreamCaptureMode; the same
happened to PyTorch's NCCL watchdog: pytorch pull request 148594).
Source: CUDA Runtime API, sections 6.5 (events) and 6.4 (stream capture).
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic_ns
from typing import Any, Final, NamedTuple

from kernelcast.probe.process.driver import relax_capture
from kernelcast.probe.recording.regions import RegionTotals

# Event pairs made at one time for a device; with polls a second apart this many launches can be under way.
PAIRS: Final = 64
# Limit of event pairs of a device.
MAX_PAIRS: Final = 512
NANOSECONDS_PER_MILLISECOND: Final = 1e6
NANOSECONDS: Final = 1_000_000_000
# Samples that may be made at once, as seconds of the rate.
BURST_SECONDS: Final = 0.25


class Pair(NamedTuple):
    """A start and an end event, as CUDA's handles, of one device."""

    start: int
    end: int
    device: int


class TimedLaunch(NamedTuple):
    """A launch that is being timed: its key, the events that will give its duration, the configuration in force."""

    key: Any
    pair: Pair
    region: RegionTotals | None
    weight: int
    configuration: int = 0


class SamplingBucket:
    """A token bucket: limits samples per second, with a burst of a quarter of a second. Safe for several threads.

    Args:
        rate: Samples per second.
        clock: Monotonic nanoseconds.
    """

    def __init__(self, rate: float, clock: Callable[[], int] = monotonic_ns) -> None:
        self._clock = clock
        self._lock = threading.RLock()  # a signal handler may launch while its thread is in `take`
        self._rate = rate
        self._tokens = self._capacity = _burst(rate)
        self._filled_ns = clock()

    @property
    def rate(self) -> float:
        """Samples a second."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        with self._lock:
            self._fill()
            self._rate, self._capacity = rate, _burst(rate)
            self._tokens = min(self._tokens, self._capacity)

    def take(self) -> bool:
        """Whether one more sample may be made now."""
        with self._lock:
            self._fill()
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True

    def _fill(self) -> None:
        now_ns = self._clock()
        self._tokens = min(self._capacity, self._tokens + self._rate * (now_ns - self._filled_ns) / NANOSECONDS)
        self._filled_ns = now_ns


def _burst(rate: float) -> float:
    return max(1.0, rate * BURST_SECONDS) if rate > 0 else 0.0


class EventTimer:
    """Times launches of a process by pairs of events.

    Any thread of the program calls `begin`, `end` and `release`; the probe's thread calls the rest. They exchange
    pairs through deques, whose append and popleft are atomic.

    Args:
        runtime: CuPy's `cupy.cuda.runtime`, or its double.
        driver: Returns the CUDA driver library.
    """

    def __init__(self, runtime: Any, driver: Callable[[], Any]) -> None:
        self._runtime = runtime
        self._driver = driver
        self._free: dict[int, deque[Pair]] = {}
        self._made: dict[int, int] = {}
        self._under_way: deque[TimedLaunch] = deque()
        self._relaxed = 0  # the thread
        self.failures = 0
        """Samples lost to an error of CUDA's."""

    def begin(self, device: int, stream: int) -> Pair | None:
        """Record the start of a launch; None where no event is free. On the program's thread.

        Raises:
            Exception: An error of CUDA.
        """
        try:
            free = self._free[device]
            pair = free.popleft()
        except LookupError:  # another thread may take the last one at this moment
            return None
        try:
            self._runtime.eventRecord(pair.start, stream)
        except BaseException:
            free.append(pair)
            raise
        return pair

    def end(self, sample: TimedLaunch, stream: int) -> None:
        """Record the end of a launch. On the program's thread.

        Raises:
            Exception: An error of CUDA.
        """
        try:
            self._runtime.eventRecord(sample.pair.end, stream)
        except BaseException:
            self.release(sample.pair)
            raise
        self._under_way.append(sample)

    def release(self, pair: Pair) -> None:
        """Return a pair whose launch or timing failed, or whose time was read."""
        self._free[pair.device].append(pair)

    def prepare(self, device: int) -> None:
        """Make the events of a device, and more while less than a quarter is free; on the probe's own thread.

        Raises:
            Exception: An error of CUDA.
        """
        free = self._free.setdefault(device, deque())
        made = self._made.get(device, 0)
        if made >= MAX_PAIRS or len(free) > made // 4:
            return
        self._enter(device)
        for _ in range(PAIRS):
            create = self._runtime.eventCreateWithFlags
            free.append(Pair(create(0), create(0), device))
        self._made[device] = made + PAIRS

    def finished(self) -> Iterator[tuple[TimedLaunch, int]]:
        """Samples whose launch has ended, with nanoseconds; on the probe's own thread."""
        for _ in range(len(self._under_way)):
            sample = self._under_way.popleft()
            try:
                self._enter(sample.pair.device)
                if self._runtime.eventQuery(sample.pair.end) != 0:
                    self._under_way.append(sample)
                    continue
                milliseconds = self._runtime.eventElapsedTime(sample.pair.start, sample.pair.end)
            except Exception:  # noqa: BLE001  the program's own error, as an illegal address, shows up here too
                self.failures += 1
                self.release(sample.pair)
                continue
            self.release(sample.pair)
            yield sample, round(milliseconds * NANOSECONDS_PER_MILLISECOND)

    def pending(self) -> list[TimedLaunch]:
        """Samples whose time is not known yet."""
        return list(self._under_way)

    def _enter(self, device: int) -> None:
        self._runtime.setDevice(device)
        if self._relaxed != threading.get_ident():
            self._relaxed = threading.get_ident()
            relax_capture(self._driver)
