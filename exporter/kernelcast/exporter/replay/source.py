"""A recording as a source of the exporter's pipeline: at its own speed or faster, with its times moved to now."""

from collections.abc import Iterator

import numpy as np

from kernelcast.exporter.replay.idleness import Idleness
from kernelcast.exporter.replay.occupation import COLLECTIVE, COMPUTE, COPY, Occupation
from kernelcast.exporter.replay.regions import Regions
from kernelcast.exporter.replay.tally import KernelTally
from kernelcast.exporter.replay.trace import EventSpans, Trace
from kernelcast.exporter.replay.traffic import ReplayedTraffic
from kernelcast.exporter.totals.report import ProcessReport, SourceBatch
from kernelcast.wire.frames import Counters
from kernelcast.wire.identity import REPLAYED, Device, Process, new_nonce
from kernelcast.wire.kernels import COLLECTIVE as COLLECTIVE_CLASS
from kernelcast.wire.kernels import kernel_class, normalise

METHOD = "replay"


class TraceSource:
    """Replays a trace: an event is reported once its end, moved to now, has passed.

    `replay.run.publish` polls it on one thread. To the aggregator it is a process like any other: its totals are
    cumulative, from 0, under a nonce of their own.
    """

    def __init__(
        self, trace: Trace, *, program: str, rank: str, hostname: str, speed: float | None, start_ns: int
    ) -> None:
        """Prepare the totals; nothing is reported before `start_ns`.

        Args:
            trace: What to replay.
            program: The program's name for its series.
            rank: Its rank; empty for a single process.
            hostname: The node that the series shall be of.
            speed: Seconds of the trace in one second, above 0; None reports everything at the first poll.
            start_ns: When the trace's first event happens now, Unix nanoseconds.
        """
        self.trace = trace
        self.process = Process(program=program, nonce=new_nonce(), start_ns=start_ns, rank=rank, source=REPLAYED)
        self.devices = tuple(
            Device(
                hostname=hostname,
                uuid=f"GPU-replay-{trace.digest}-{device.index}",
                gpu=str(device.index),
                model_name=device.model_name,
            )
            for device in trace.devices
        )
        self._speed = speed
        self._start_ns = start_ns
        self._tally = KernelTally(trace)
        self._traffic = ReplayedTraffic(trace)
        self._regions = Regions(trace)
        self._occupations = tuple(_occupation(trace, device) for device in range(len(trace.devices)))
        self._idleness = tuple(_idleness(trace, device) for device in range(len(trace.devices)))
        self._ends = tuple(
            spans.end_ns for spans in (trace.launches.spans, trace.copies.spans, trace.memsets, trace.syncs.spans)
        )
        self._first_ns, self._last_ns = _limits(trace)
        self._moment_ns = self._first_ns
        self._done = False

    @property
    def launches(self) -> int:
        """Kernel launches reported so far."""
        return self._tally.launches

    @property
    def copies(self) -> int:
        """Copies reported so far."""
        return self._traffic.operations

    @property
    def length_seconds(self) -> float:
        """Length of the recording, in its own time."""
        return (self._last_ns - self._first_ns) / 1e9

    @property
    def position_seconds(self) -> float:
        """Position of the replay, in the recording's own time."""
        return (self._moment_ns - self._first_ns) / 1e9

    def poll(self, now_ns: int) -> SourceBatch:
        """Events that ended since the last poll; the first poll past the end repeats all totals as final."""
        if self._done:
            return SourceBatch(done=True)
        if now_ns < self._start_ns:
            return SourceBatch()
        self._moment_ns = self._moment(now_ns)
        launches, copies, fills, syncs = (
            int(np.searchsorted(ends, self._moment_ns, side="right")) for ends in self._ends
        )
        self._tally.advance(launches)
        self._traffic.advance(copies, fills, syncs)
        self._done = self._moment_ns >= self._last_ns
        ranges = self.trace.ranges.end_ns
        self._regions.advance(
            launches, len(ranges) if self._done else int(np.searchsorted(ranges, self._moment_ns, side="right"))
        )
        return SourceBatch(reports=tuple(self._reports()), done=self._done)

    def close(self) -> None:
        """Nothing is held open."""

    def _moment(self, now_ns: int) -> int:
        """Position of the replay, in the recording's time; it never goes back."""
        if self._speed is None:
            return self._last_ns
        passed_ns = int(min((now_ns - self._start_ns) * self._speed, self._last_ns - self._first_ns))
        return max(self._first_ns + passed_ns, self._moment_ns)

    def _reports(self) -> Iterator[ProcessReport]:
        for number, device in enumerate(self.devices):
            names, rows, variants = self._tally.all_totals(number) if self._done else self._tally.changes(number)
            yield ProcessReport(
                process=self.process,
                device=device,
                names=names,
                rows=rows,
                counters=Counters(
                    device=number,
                    memcpy=self._traffic.copies(number),
                    sync=self._traffic.waits(number),
                    device_time=self._occupations[number].until(self._moment_ns),
                    launch_gaps=self._idleness[number].until(self._moment_ns),
                    regions=self._regions.rows(number),
                    running_ns=self._moment_ns - self._first_ns,
                    measured_ns=self._moment_ns - self._first_ns,
                    waits_measured_ns=self._moment_ns - self._first_ns,
                ),
                variants=variants,
                method=METHOD,
                final=self._done,
            )


def _limits(trace: Trace) -> tuple[int, int]:
    """The first start and the last end of anything, waits included."""
    syncs = trace.syncs.spans
    starts = [int(syncs.start_ns.min())] if len(syncs) else []
    ends = [int(syncs.end_ns[-1])] if len(syncs) else []
    if trace.has_gpu_activity:
        starts.append(trace.start_ns)
        ends.append(trace.end_ns)
    return min(starts, default=0), max(ends, default=0)


def _occupation(trace: Trace, device: int) -> Occupation:
    is_collective = np.array(
        [kernel_class(normalise(name)) == COLLECTIVE_CLASS for name in trace.names], dtype=np.bool_
    )
    launches = trace.launches
    collective = (
        is_collective[launches.name] if len(launches.name) else np.zeros(0, dtype=np.bool_)
    )  # an empty index array selects from no names at all
    here = launches.spans.device == device
    kinds = (
        (COMPUTE, _chosen(launches.spans, here & ~collective)),
        (COLLECTIVE, _chosen(launches.spans, here & collective)),
        (COPY, _chosen(trace.copies.spans, trace.copies.spans.device == device)),
        (COPY, _chosen(trace.memsets, trace.memsets.device == device)),
    )
    return Occupation(kinds, start_ns=trace.start_ns, end_ns=trace.end_ns)


def _idleness(trace: Trace, device: int) -> Idleness:
    activity = (trace.launches.spans, trace.copies.spans, trace.memsets)
    return Idleness(tuple(_chosen(spans, spans.device == device) for spans in activity))


def _chosen(spans: EventSpans, mask: np.typing.NDArray[np.bool_]) -> EventSpans:
    return EventSpans(spans.start_ns[mask], spans.duration_ns[mask], spans.device[mask])
