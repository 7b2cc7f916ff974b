"""Runs the shipped engine over a recorded fleet: passages of limits, causes, peers, alarms."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from benchmarks.predictor.fleet.layout import DAY_STEPS, IDLE, RACK_PATTERN, STEP_SECONDS, Job
from benchmarks.predictor.fleet.passages import JUDGED, Passages, passages
from benchmarks.predictor.fleet.recording import Recording

from kernelcast.predictor.alarms.alarms import Alarms
from kernelcast.predictor.alarms.grouping import DevicePrograms
from kernelcast.predictor.alarms.settings import AlarmSettings
from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.causes.features import features
from kernelcast.predictor.causes.find import RowCauses, find
from kernelcast.predictor.causes.observed import Around, Observed
from kernelcast.predictor.cycle.candidate_findings import observed_candidate
from kernelcast.predictor.cycle.faults.stragglers import straggler
from kernelcast.predictor.peers.detector import PeerDetector
from kernelcast.predictor.peers.groups import PeerGroups
from kernelcast.predictor.peers.panel import PeerStep
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.cause_rules import Excuse
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.meanings import MEANINGS, Cause
from kernelcast.wire.findings import Finding, FindingState, Scope, Severity

START_NS: Final = 1_800_000_000 * 1_000_000_000
STEP_NS: Final = round(STEP_SECONDS) * 1_000_000_000
CAUSE_STEPS: Final = 3
"""Causes are looked for in all GPUs every quarter of an hour."""
COMPANIONS: Final = (
    device.SM_CLOCK.prometheus_name,
    device.CLOCK_EVENT_REASONS.prometheus_name,
    device.GPU_UTIL.prometheus_name,
)
"""Metrics of the GPU that explain a kernel's duration."""
SPEED: Final = frozenset(
    {Cause.POWER_BRAKE, Cause.THERMAL, Cause.HARDWARE_SLOWDOWN, Cause.CLOCK_LOW, Cause.CONTENTION, Cause.AGEING}
)
PREDICTED: Final = frozenset(
    {
        Cause.THERMAL,
        Cause.MEMORY_LEAK,
        Cause.AGEING,
        Cause.CONTENTION,
        Cause.KERNEL_SLOWDOWN,
        Cause.LOAD,
        Cause.UNKNOWN,
    }
)
"""Causes of series with a limit: the passage detector says whether it is reached. Others are observed as they are."""


UNLIMITED: Final = AlarmSettings(rack_pattern=RACK_PATTERN, pages_per_day=10_000)
"""Settings with which no page is held."""


@dataclass(frozen=True, slots=True)
class Change:
    """A finding that began, changed or ended at an interval."""

    step: int
    finding: Finding


class FleetEngine:
    """The engine over one recording, in order of time.

    Attributes:
        alarms: The control of alarms.
        unlimited: The same without a budget of pages.
        unlimited_changes: Its changes.
        passed: By number of the fault, the interval at which a series of its GPUs first passed a limit.
    """

    def __init__(self, recording: Recording, settings: AlarmSettings | None = None) -> None:
        self._recording = recording
        self.alarms = Alarms(settings or AlarmSettings(rack_pattern=RACK_PATTERN))
        self.unlimited = Alarms(UNLIMITED)
        self.unlimited_changes: list[Change] = []
        self.passed: dict[int, int] = {}
        self._labels = [_device_labels(recording, gpu) for gpu in range(recording.size.gpus)]
        self._found: list[RowCauses] = [RowCauses()] * recording.size.gpus
        self._kernel_found: list[RowCauses] = self._found
        self._alerts = np.zeros(len(JUDGED) * recording.size.gpus, dtype=np.bool_)
        self._detectors: dict[int, PeerDetector] = {}

    def run(self, ends: range | None = None) -> Iterator[Change]:
        """Evaluate the fleet after some numbers of intervals; by default after each one beyond the first day."""
        recording = self._recording
        for changes in self.steps(ends or range(DAY_STEPS, recording.size.steps + 1)):
            yield from changes

    def steps(self, ends: range) -> Iterator[list[Change]]:
        """Evaluate the fleet after some numbers of intervals; yields the changes of each evaluation."""
        recording = self._recording
        rows = len(JUDGED) * recording.size.gpus
        for moment in passages(recording, ends):
            if moment.end % CAUSE_STEPS == 0 or (moment.alerts & ~self._alerts).any():
                self._look_for_causes(moment.end)
            self._alerts = moment.alerts
            candidates = {(one.metric, one.labels): one for one in self._candidates(moment)}
            now_ns, programs = START_NS + moment.end * STEP_NS, self._programs(moment.end - 1)
            found = self.alarms.step(candidates.values(), rows, now_ns, programs=programs)
            free = self.unlimited.step(candidates.values(), rows, now_ns, programs=programs)
            self.unlimited_changes += [Change(moment.end - 1, finding) for finding in free]
            self._note_passed(moment)
            yield [Change(moment.end - 1, finding) for finding in found]

    def _note_passed(self, moment: Passages) -> None:
        """Note when a GPU of each fault first passed a limit."""
        gpus = set((np.flatnonzero(moment.beyond) % self._recording.size.gpus).tolist())
        for number, fault in enumerate(self._recording.faults):
            if fault.onset < moment.end <= fault.end and gpus & set(fault.gpus.tolist()):
                self.passed.setdefault(number, moment.end - 1)

    def _candidates(self, moment: Passages) -> Iterator[Finding]:
        yield from self._observed(moment.end)
        yield from self._stragglers(moment.end)
        yield from self._passages(moment)

    def _passages(self, moment: Passages) -> Iterator[Finding]:
        """Series that reach their limit, or have passed it."""
        gpus = self._recording.size.gpus
        for row in np.flatnonzero(moment.alerts).tolist():
            metric, gpu = JUDGED[row // gpus], row % gpus
            labels = self._labels_of(metric is kernel.DURATION, gpu, moment.end - 1)
            meaning = MEANINGS[metric.prometheus_name]
            seen = (self._kernel_found if metric is kernel.DURATION else self._found)[gpu]
            if metric is kernel.DURATION and seen.reason is Excuse.SOFTWARE_POWER_CAP:
                continue  # as `cycle.explanations`: the clock is low on purpose, the kernel itself is not slow
            cause = seen.first_of(frozenset({meaning.cause}) | meaning.other_causes)
            yield Finding(
                finding_id="",
                cause=meaning.cause if cause is None else cause.cause,
                state=FindingState.PASSED if moment.beyond[row] else FindingState.PREDICTED,
                severity=Severity.PAGE if cause is None else cause.severity,
                scope=Scope.SERIES,
                labels=labels,
                metric=metric.prometheus_name,
                value=float(moment.level[row]),
                limit=float(moment.limit[row]),
                probability=float(moment.probability[row]),
                seconds_to_limit=_times(moment.seconds[row]),
                evidence=() if cause is None else cause.evidence,
            )

    def _observed(self, end: int) -> Iterator[Finding]:
        """Causes that need no limit."""
        for gpu, (found, in_program) in enumerate(zip(self._found, self._kernel_found, strict=True)):
            for one in found.causes:
                if one.cause not in PREDICTED:
                    yield observed_candidate(one, self._labels[gpu], START_NS + end * STEP_NS)
            deploy = in_program.first_of(frozenset({Cause.DEPLOY}))
            if deploy is not None:
                yield observed_candidate(deploy, self._labels_of(True, gpu, end - 1), START_NS + end * STEP_NS)

    def _stragglers(self, end: int) -> Iterator[Finding]:
        """Workers that are slow against the peers of their job, each interval being one step."""
        recording = self._recording
        running = recording.job[:, end - 1]
        durations = recording.values[kernel.DURATION.prometheus_name][:, end - 1]
        self._detectors = {number: one for number, one in self._detectors.items() if (running == number).any()}
        for number in np.unique(running[running != IDLE]).tolist():
            job = recording.jobs[number]
            if number not in self._detectors:
                self._detectors[number] = _peer_detector(job)
            detector = self._detectors[number]
            detector.observe(PeerStep(end - job.begin, durations[job.gpus][:, None]))
            for worker in detector.findings:
                gpu = int(job.gpus[worker.worker])
                # A worker is a series of its own beside those of its kernels, as in `cycle.faults.stragglers`.
                labels = tuple(pair for pair in self._labels_of(True, gpu, end - 1) if pair[0] != "kernel")
                begin_ns, end_ns = START_NS + (end - 1) * STEP_NS, START_NS + end * STEP_NS
                # Its own features may show why it is slow; the comparison with peers among them adds nothing.
                own = self._kernel_found[gpu].first_of(SPEED)
                explained = own is not None and own.severity is Severity.PAGE
                found = own if own and explained else straggler(worker, labels, begin_ns, end_ns)
                yield observed_candidate(found, labels, end_ns, kernel.DURATION.prometheus_name)

    def _look_for_causes(self, end: int) -> None:
        """Look for causes in all GPUs, and in the kernels on them."""
        recording, gpus = self._recording, self._recording.size.gpus
        part = slice(max(end - DAY_STEPS, 0), end)
        group = recording.job[:, end - 1]
        values = {name: array[:, part] for name, array in recording.values.items()}
        end_ns = [START_NS + end * STEP_NS] * gpus
        duration = kernel.DURATION.prometheus_name
        of_gpus = {name: array for name, array in values.items() if name != duration}
        around = Around(node=recording.size.node, process=recording.process[:, part])
        self._found = find(features(Observed(of_gpus, STEP_SECONDS, self._labels, end_ns, around)))
        around = Around(
            programs=recording.programs[:, part],
            group=np.where(group == IDLE, -1 - np.arange(gpus), group),
            process=recording.process[:, part],
            version=recording.version[:, part],
        )
        of_kernels = {name: values[name] for name in (duration, *COMPANIONS)}
        self._kernel_found = find(features(Observed(of_kernels, STEP_SECONDS, self._labels, end_ns, around)))

    def _programs(self, step: int) -> DevicePrograms:
        """The program of each GPU that has a job."""
        running = self._recording.job[:, step]
        jobs = self._recording.jobs
        return {
            (dict(self._labels[gpu])["Hostname"], f"GPU-{gpu}", ""): jobs[int(running[gpu])].program
            for gpu in np.flatnonzero(running != IDLE).tolist()
        }

    def _labels_of(self, in_program: bool, gpu: int, step: int) -> tuple[tuple[str, str], ...]:  # noqa: FBT001
        number = int(self._recording.job[gpu, step])
        if not in_program or number == IDLE:
            return self._labels[gpu]
        job = self._recording.jobs[number]
        own = {"program": job.program, "kernel": "gemm", "rank": str(int(np.searchsorted(job.gpus, gpu)))}
        return tuple(sorted({**dict(self._labels[gpu]), **own}.items()))


def _device_labels(recording: Recording, gpu: int) -> tuple[tuple[str, str], ...]:
    host = recording.size.host(int(recording.size.node[gpu]))
    local = str(gpu % recording.size.gpus_per_node)
    return (("Hostname", host), ("UUID", f"GPU-{gpu}"), ("gpu", local), ("modelName", "simulated"))


def _peer_detector(job: Job) -> PeerDetector:
    """All ranks of a job are peers: they do the same work."""
    return PeerDetector(PeerGroups.of(np.zeros(len(job.gpus), dtype=np.int64)))


def _times(seconds: Floats) -> tuple[float | None, float | None, float | None]:
    early, median, late = (float(one) if np.isfinite(one) else None for one in seconds)
    return early, median, late
