"""Sums the processes of each program, rank and GPU into series that never fall, within fixed bounds.

`Pipeline.tick` passes each source's reports to `report`, then calls `meter` and `samples`; `snapshot.py` stores the
state. All of it runs on the daemon's thread.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kernelcast.columnar import Sample
from kernelcast.exporter.running_time import RunningTime
from kernelcast.exporter.totals.emit import Emitter
from kernelcast.exporter.totals.energy import EnergyMeter
from kernelcast.exporter.totals.process import MAX_TUNABLES, ProcessTotals
from kernelcast.exporter.totals.report import ProcessReport
from kernelcast.exporter.totals.series import ProgramSeries, SeriesKey
from kernelcast.wire.events import Outcome, OutcomeState
from kernelcast.wire.frames import MEMSET
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND
from kernelcast.wire.recent_ids import RecentIds

DEFAULT_KERNELS: Final = 100
"""In six real traces (HolisticTraceAnalysis, tests/data) 100 kernels cover 98.8 to 100 % of GPU time."""
DEFAULT_DETAILED: Final = 20
"""Kernels with histogram buckets; a histogram is about thirty series."""
DEFAULT_RETIRE_SECONDS: Final = 300.0
"""An ended program's series stay for one Prometheus lookback, so that its last increase is seen."""
MAX_PROGRAMS: Final = 4_096
"""Limit of pairs of program and GPU; reports of further ones are refused and counted."""
MAX_PROCESSES: Final = 1_024
"""Limit of one program on one GPU. It equals the limit of the probe's socket, so that the socket refuses first, which
also notifies the program."""
MAX_ENDED: Final = 16
"""Ended processes of a program whose totals are kept, in case that one reconnects."""
MAX_FINISHED: Final = 4_096
"""Names of processes that were dropped from there; a report of one is ignored."""
MAX_OUTCOME_IDS: Final = 4_096
"""Ids of counted outcomes, as many as may wait for Kafka at one time."""
MAX_TUNABLE_CHARACTERS: Final = 1_024
"""Limit of a tunable's name as a label; a space's name has its function and shape. Outcomes of longer ones are relayed
to Kafka, but have no series."""
DECISIONS: Final = ("inconclusive", "failed")
"""Decisions that are counted by themselves; their state is `rolled_back`."""


@dataclass(frozen=True, slots=True)
class ProgramSamples:
    """All samples of one program on one host at one time; they have the same record key and resource."""

    hostname: str
    program: str
    samples: tuple[Sample, ...]
    time_ns: int = 0


@dataclass(slots=True)
class AggregatorCounts:
    """Counts of the aggregator since it started.

    Attributes:
        reports: Processed reports.
        launches: Kernel launches added.
        copies: Copies added.
        fallen: Totals lower than the same process's last ones, which are ignored; a defect of the reporting program.
        refused: Totals and reports beyond a limit.
        late: Reports of processes that ended long ago; ignored.
        retired: Programs whose series are no longer written.
        unmatched: Outcomes of hints of an unknown program.
    """

    reports: int = 0
    launches: int = 0
    copies: int = 0
    fallen: int = 0
    refused: int = 0
    late: int = 0
    retired: int = 0
    unmatched: int = 0


class ProgramOnGpu:
    """One program on one GPU: its series and the processes that feed them.

    Attributes:
        series: The published series.
        live: Processes by nonce; the one that reported last is at the end.
        ended: The last few that ended; if one reports again, it continues from its last totals.
    """

    __slots__ = ("ended", "live", "series")

    def __init__(self, series: ProgramSeries) -> None:
        self.series = series
        self.live: OrderedDict[str, ProcessTotals] = OrderedDict()
        self.ended: OrderedDict[str, ProcessTotals] = OrderedDict()


class Aggregator:
    """Converts reports to samples. Not thread-safe; all times are passed in.

    A program whose processes have all ended is written for `retire_after_seconds` more and then forgotten. If it
    returns, its series restart at zero with a later start time, as after any restart of a source.

    Args:
        max_kernels: Kernels with a series of their own, per program and GPU; None for all of them.
        detailed_kernels: Number of those that are sent with histogram buckets.
        retire_after_seconds: How long an ended program is still written.
        epoch_ns: Begin of this aggregator's memory, Unix nanoseconds: no series has an earlier start time. A daemon
            that starts without a snapshot passes its own start; a replay passes 0.

    Attributes:
        members: Programs on GPUs, by the labels that identify their series.
        counts: Counts since the start.
        epoch_ns: The argument; set to the time at which a program was last retired.
        energy: Energy of GPUs, and estimates for kernels.
        outcome_ids: Events of the newest outcomes that were counted; a program sends one again after a reconnect.
        finished: Ended processes that are no longer kept, so that a late report is not counted twice.
    """

    def __init__(
        self,
        *,
        max_kernels: int | None = DEFAULT_KERNELS,
        detailed_kernels: int = DEFAULT_DETAILED,
        retire_after_seconds: float = DEFAULT_RETIRE_SECONDS,
        epoch_ns: int = 0,
    ) -> None:
        self._max_kernels = max_kernels
        self._detailed_kernels = detailed_kernels
        self._retire_after_ns = round(retire_after_seconds * NANOSECONDS_PER_SECOND)
        self.epoch_ns = epoch_ns
        self._time = RunningTime()
        self.members: dict[SeriesKey, ProgramOnGpu] = {}
        self.finished = RecentIds(MAX_FINISHED)
        self.counts = AggregatorCounts()
        self.energy = EnergyMeter()
        self.outcome_ids = RecentIds(MAX_OUTCOME_IDS)

    def report(self, report: ProcessReport) -> None:
        """Add the totals of one process on one GPU."""
        self.counts.reports += 1
        key = _key(report)
        nonce = report.process.nonce
        if _finished_name(nonce, key) in self.finished:
            self.counts.late += 1
            return
        member = self._member(key, report)
        if member is None:
            self.counts.refused += 1
            return
        process = member.live.get(nonce) or member.ended.get(nonce)
        if process is None:
            if not report.final and not self._has_room(member):
                # Refused for ever: later reports would lack the names in this one.
                self._finish(nonce, key)
                self.counts.refused += 1
                return
            process = ProcessTotals()
        # A process of which one report is unusable keeps its place, or it would count all of its totals again.
        if report.final:
            self._end(member, nonce, process)
        member.series.active_ns = 0
        growth = process.advance(report)
        self.counts.fallen += growth.fallen
        self.counts.refused += growth.refused + member.series.grow(growth)
        self.counts.launches += sum(grown.launches for grown in growth.kernels.values())
        self.counts.copies += sum(
            n for name, n in growth.counters.items() if name[0] == "memcpy_operations" and MEMSET not in name
        )
        if not report.final:
            member.ended.pop(nonce, None)
            member.live[nonce] = process
            member.live.move_to_end(nonce)

    def recall(self, report: ProcessReport) -> None:
        """Restore the totals that a process reported to an earlier run of this exporter; it may have ended since."""
        self.report(report)
        member = self.members.get(_key(report))
        process = member.live.get(report.process.nonce) if member is not None else None
        if process is not None:
            process.confirmed = False

    def outcome(self, outcome: Outcome, event_id: str = "") -> None:
        """Count the outcome of a hint; one with an id counts once."""
        if event_id and not self.outcome_ids.add(event_id):
            return
        member = self._addressee(outcome)
        if member is None:
            self.counts.unmatched += 1
            return
        series = member.series
        decided = outcome.decision in DECISIONS and outcome.state is OutcomeState.ROLLED_BACK
        key = (outcome.tunable, outcome.decision if decided else outcome.state.value)
        states = len(OutcomeState) + len(DECISIONS)
        is_full = key not in series.outcomes and len(series.outcomes) >= MAX_TUNABLES * states
        if is_full or len(outcome.tunable) > MAX_TUNABLE_CHARACTERS:
            self.counts.refused += 1
            return
        series.outcomes[key] = series.outcomes.get(key, 0) + 1
        if outcome.measured_ratio is not None:
            series.measured[outcome.tunable] = outcome.measured_ratio

    def meter(self, devices: Iterable[Sample], now_ns: int) -> list[Sample]:
        """Divide the energy in device samples over the kernels that ran; returns the GPUs' own energy series."""
        series = (member.series for member in self.members.values())
        return self.energy.add_interval(devices, series, self._time.at(now_ns))

    def samples(self, now_ns: int) -> Iterator[ProgramSamples]:
        """Close the interval and return every series at `now_ns` (Unix nanoseconds), grouped by host and program."""
        self._retire(now_ns)
        groups: dict[tuple[str, str], list[Sample]] = {}
        for key, member in self.members.items():
            series = member.series
            series.settle(max_kernels=self._max_kernels, detailed_kernels=self._detailed_kernels)
            series.start_ns = min(series.start_ns or now_ns, now_ns)
            shown = groups.setdefault((key.hostname, key.program), [])
            shown.extend(Emitter(series, now_ns).samples(member.live.values()))
        for (hostname, program), samples in groups.items():
            yield ProgramSamples(hostname, program, tuple(samples), now_ns)

    def _member(self, key: SeriesKey, report: ProcessReport) -> ProgramOnGpu | None:
        member = self.members.get(key)
        if member is None and len(self.members) < MAX_PROGRAMS:
            start_ns = max(report.process.start_ns, self.epoch_ns)
            member = self.members[key] = ProgramOnGpu(ProgramSeries(key, report.device, start_ns))
        return member

    def _has_room(self, member: ProgramOnGpu) -> bool:
        """Whether a further process may report; one that has not returned since an earlier run is dropped for it."""
        if len(member.live) < MAX_PROCESSES:
            return True
        absent = next((nonce for nonce, process in member.live.items() if not process.confirmed), None)
        if absent is None:
            return False
        self._end(member, absent, member.live[absent])
        return True

    def _end(self, member: ProgramOnGpu, nonce: str, process: ProcessTotals) -> None:
        member.live.pop(nonce, None)
        member.ended[nonce] = process
        member.ended.move_to_end(nonce)
        while len(member.ended) > MAX_ENDED:
            oldest, _ = member.ended.popitem(last=False)
            self._finish(oldest, member.series.key)

    def _finish(self, nonce: str, key: SeriesKey) -> None:
        self.finished.add(_finished_name(nonce, key))

    def _retire(self, now_ns: int) -> None:
        running_ns = self._time.at(now_ns)
        for key, member in list(self.members.items()):
            series = member.series
            if not series.active_ns or any(process.confirmed for process in member.live.values()):
                series.active_ns = running_ns
            elif running_ns - series.active_ns >= self._retire_after_ns:
                self._forget(key, member, now_ns)

    def _forget(self, key: SeriesKey, member: ProgramOnGpu, now_ns: int) -> None:
        for nonce in member.ended:
            self._finish(nonce, key)
        del self.members[key]
        self.counts.retired += 1
        # The series of a program that returns must start later than its earlier points.
        self.epoch_ns = max(self.epoch_ns, now_ns)

    def _addressee(self, outcome: Outcome) -> ProgramOnGpu | None:
        """Return the program of an outcome; also its GPU, if the outcome names a known one."""
        fitting = [
            (key.uuid == outcome.uuid, member)
            for key, member in self.members.items()
            if key.program == outcome.program and key.rank == outcome.rank and outcome.hostname in ("", key.hostname)
        ]
        return max(fitting, key=lambda item: item[0])[1] if fitting else None


def _key(report: ProcessReport) -> SeriesKey:
    process, device = report.process, report.device
    return SeriesKey(device.hostname, device.uuid, device.gi_id, process.program, process.rank, process.source)


def _finished_name(nonce: str, key: SeriesKey) -> str:
    return f"{nonce}|{key.uuid}|{key.gi_id}"
