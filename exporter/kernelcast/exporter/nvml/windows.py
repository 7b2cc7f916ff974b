"""Counts of events within a sliding window, as dcgm-exporter shows them.

dcgm-exporter asks DCGM's cache for the samples of the window; here the samples are counted as they come. A clock event
counts once for each sample that has its bit, so its number depends on the interval, as with dcgm-exporter.
"""

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kernelcast.exporter.nvml.sampling.reading import EventCount, GpuReading, NodeReading
from kernelcast.exporter.running_time import RunningTime
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.devices.dcgm_exporter import CLOCK_EVENTS_COUNT, WINDOW_LABEL, XID_ERRORS_COUNT
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND

MAX_BUCKETS: Final = 600
"""Parts into which a window is divided, so that its memory does not depend on its length or the interval."""
MILLISECONDS_PER_SECOND: Final = 1000
CLOCK_EVENTS: Final = (
    "gpu_idle",
    "clocks_setting",
    "power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal",
    "hw_thermal",
    "hw_power_brake",
    "display_clocks",
)
"""By bit, in dcgm-exporter's words, which differ from nvidia-smi's. Source: clock_events_collector.go."""


class EventWindow:
    """Counts of named events in the last seconds.

    Args:
        seconds: The window's length.
    """

    def __init__(self, seconds: float) -> None:
        self._length_ns = round(seconds * NANOSECONDS_PER_SECOND)
        self._bucket_ns = max(self._length_ns // MAX_BUCKETS, 1)
        self._buckets: deque[tuple[int, Counter[str]]] = deque()
        self._total: Counter[str] = Counter()  # of all buckets: adding 300 of them up takes 0.25 ms

    def __len__(self) -> int:
        """Number of buckets."""
        return len(self._buckets)

    def add(self, event: str, time_ns: int, count: int = 1) -> None:
        """Count an event; one that is older than the newest is counted with it."""
        bucket = time_ns // self._bucket_ns
        if not self._buckets or bucket > self._buckets[-1][0]:
            self._buckets.append((bucket, Counter()))
        self._buckets[-1][1][event] += count
        self._total[event] += count
        if len(self._buckets) > MAX_BUCKETS:
            self._remove_oldest()

    def counts(self, now_ns: int) -> Counter[str]:
        """The events of the window that ends now."""
        first = (now_ns - self._length_ns) // self._bucket_ns
        while self._buckets and self._buckets[0][0] <= first:
            self._remove_oldest()
        return +self._total

    def _remove_oldest(self) -> None:
        _, counts = self._buckets.popleft()
        self._total = self._total - counts


class EventCounts:
    """Clock events and XIDs of each GPU within their windows. `NvmlSource` has one, on the daemon's thread.

    Args:
        xid_window_seconds: The window of `DCGM_EXP_XID_ERRORS_COUNT`.
        clock_window_seconds: The window of `DCGM_EXP_CLOCK_EVENTS_COUNT`.
    """

    def __init__(self, *, xid_window_seconds: float = 300.0, clock_window_seconds: float = 300.0) -> None:
        self._xid_seconds, self._clock_seconds = xid_window_seconds, clock_window_seconds
        self._xids: dict[str, EventWindow] = {}
        self._clocks: dict[str, EventWindow] = {}
        self._counted: dict[tuple[str, int], int] = {}
        self._time = RunningTime()

    def complete(self, node: NodeReading) -> NodeReading:
        """The reading with the counts of the windows that end with it; a MIG instance has none, its GPU has them."""
        now_ns = self.observe(node)
        gpus = (gpu if gpu.gi_id else replace(gpu, events=tuple(self._counts(gpu, now_ns))) for gpu in node.gpus)
        return replace(node, gpus=tuple(gpus))

    def observe(self, node: NodeReading) -> int:
        """Note the events of a reading whose counts nobody asks for; returns its time, without the clock's changes."""
        now_ns = self._time.at(node.time_ns)
        for gpu in node.gpus:
            if not gpu.gi_id:
                self._observe_clocks(gpu, now_ns)
                self._observe_xids(gpu, now_ns)
        return now_ns

    def _counts(self, gpu: GpuReading, now_ns: int) -> Iterator[EventCount]:
        clocks = self._clocks.get(gpu.uuid)
        if clocks is not None:
            window = {WINDOW_LABEL: _milliseconds(self._clock_seconds)}
            for event, count in clocks.counts(now_ns).items():
                yield EventCount(CLOCK_EVENTS_COUNT.otlp_name, count, {**window, "clock_event": event})
        xids = self._xids.get(gpu.uuid)
        if xids is not None:
            window = {WINDOW_LABEL: _milliseconds(self._xid_seconds)}
            counts = xids.counts(now_ns)
            if not counts:
                yield EventCount(XID_ERRORS_COUNT.otlp_name, 0, window)
            for xid, count in counts.items():
                yield EventCount(XID_ERRORS_COUNT.otlp_name, count, {**window, "xid": xid})

    def _observe_clocks(self, gpu: GpuReading, time_ns: int) -> None:
        mask = gpu.values.get(device.CLOCK_EVENT_REASONS.otlp_name)
        if mask is None:
            return
        window = self._clocks.setdefault(gpu.uuid, EventWindow(self._clock_seconds))
        for bit, event in enumerate(CLOCK_EVENTS):
            if int(mask) >> bit & 1:
                window.add(event, time_ns)

    def _observe_xids(self, gpu: GpuReading, now_ns: int) -> None:
        if device.XID_ERRORS.otlp_name in gpu.values:
            self._xids.setdefault(gpu.uuid, EventWindow(self._xid_seconds))
        window = self._xids.get(gpu.uuid)
        if window is None:
            return
        # A total is cumulative and starts at 0, so the difference to the last one is the number of new events.
        for total in sorted(gpu.xids, key=lambda one: one.last_ns):
            key = gpu.uuid, total.xid
            new = total.count - self._counted.get(key, 0)
            self._counted[key] = total.count
            if new > 0:
                window.add(str(total.xid), min(total.last_ns + self._time.ahead_ns, now_ns), new)


def _milliseconds(seconds: float) -> str:
    return str(round(seconds * MILLISECONDS_PER_SECOND))
