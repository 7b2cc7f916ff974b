"""Facts about a run, from the totals of its probe: for the box at the program's end, and for a report file."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.settings import ProbeSettings
from kernelcast.probe.terminal.situation import CALL_STEP, Situation
from kernelcast.probe.terminal.tuning import TuningResult
from kernelcast.wire.kernels import label
from kernelcast.wire.verdict import verdict

HOTTEST: Final = 5
FORMAT: Final = 1
"""Rises when a reader of a report would misread it."""
MEMORY_FILE: Final = "/proc/self/status"


@dataclass(frozen=True, slots=True)
class HotKernel:
    """A kernel with much GPU time.

    Attributes:
        kernel: Its label.
        launches: Its launches, timed or not.
        gpu_seconds: Their GPU time; launches that were not timed count as the mean of the timed ones.
        gpu_time_ratio: Their share of the time of all kernels.
    """

    kernel: str
    launches: int
    gpu_seconds: float
    gpu_time_ratio: float


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run so far. Fields are None where they are not known.

    Attributes:
        program: Its name.
        rank: Its rank; empty for a single process.
        ranks: Number of ranks of its job, as its launcher says; None where that is not known.
        steps: Steps that have ended; 0 where none was seen.
        items: Units of work in them.
        running_seconds: Time since the probe started.
        step_seconds: Time between the ends of the first and the last step.
        first_step_seconds: Time of the first step, from the request of its batch, which no other field counts; None
            where no loader was seen.
        steps_per_second, items_per_second: Over that time.
        phase_seconds: Time by phase since the end of the first step.
        region_seconds: Wall time of the regions that the program has named, in all its threads.
        verdict: The most important of it, in one sentence.
        gpu_memory_peak_bytes: Peak of what PyTorch has allocated, by the process's number of the GPU.
        process_memory_peak_bytes: Peak of the process's resident memory.
        tuning: Results of its spaces and tunables.
        hottest_kernels: Those with most GPU time, at most five.
        method, state, reason: Of the measurement of kernels.
        measuring_seconds: Time that the probe took from the program's threads, and of its own thread.
        measuring_ratio: The same over the running time.
        cupti_step_time_ratio: Step time with CUPTI over step time without: lower bound, median, upper bound.
        has_ended: Whether the program has ended; a report of one that was killed is some seconds old.
        format: Format of the report.
    """

    program: str
    rank: str
    ranks: int | None
    steps: int
    items: int
    running_seconds: float
    step_seconds: float
    first_step_seconds: float | None
    steps_per_second: float | None
    items_per_second: float | None
    phase_seconds: Mapping[str, float]
    region_seconds: Mapping[str, float]
    verdict: str
    gpu_memory_peak_bytes: Mapping[str, int]
    process_memory_peak_bytes: int | None
    tuning: tuple[TuningResult, ...]
    hottest_kernels: tuple[HotKernel, ...]
    method: str
    state: str
    reason: str
    measuring_seconds: float
    measuring_ratio: float
    cupti_step_time_ratio: tuple[float, ...]
    has_ended: bool
    format: int = FORMAT

    def as_json(self) -> dict[str, Any]:
        """Return the facts for a report file."""
        return asdict(self)


def summary(
    recorder: Recorder,
    situation: Situation,
    settings: ProbeSettings,
    *,
    running_seconds: float,
    has_ended: bool,
    tuning: tuple[TuningResult, ...] = (),
) -> RunSummary:
    """Return the summary of a run.

    Args:
        recorder: Its totals.
        situation: State of its probe.
        settings: Settings of its probe, with its name and rank.
        running_seconds: Time since the probe started.
        has_ended: Whether the program ends.
        tuning: Results of its spaces and tunables.
    """
    progress, status = recorder.progress, situation.status
    steps, items, step_seconds = progress.steps, progress.items, progress.step_ns / 1e9
    rate = (steps - 1) / step_seconds if step_seconds > 0 else None
    job = dict(recorder.job())
    phases = {name: phase_ns / 1e9 for name, phase_ns in progress.phases()}
    regions = _regions(recorder)
    measuring_seconds = (recorder.overhead_ns + recorder.marks_cost()) / 1e9
    return RunSummary(
        program=settings.program,
        rank=settings.rank,
        ranks=int(job["world_size"]) if job.get("world_size", "").isdecimal() else None,
        steps=steps,
        items=items,
        running_seconds=running_seconds,
        step_seconds=step_seconds,
        first_step_seconds=progress.first_step_ns / 1e9 or None,
        steps_per_second=rate,
        items_per_second=rate * items / steps if rate and items else None,
        phase_seconds=phases,
        region_seconds=regions,
        verdict=_verdict(phases, regions, recorder, settings.rank),
        gpu_memory_peak_bytes=_gpu_peaks(recorder),
        process_memory_peak_bytes=_process_peak_bytes(),
        tuning=tuning,
        hottest_kernels=_hottest(recorder),
        method=status.method if status else "",
        state=status.state if status else "",
        reason=status.reason if status else "",
        measuring_seconds=measuring_seconds,
        measuring_ratio=measuring_seconds / running_seconds if running_seconds > 0 else 0.0,
        cupti_step_time_ratio=status.cost if status else (),
        has_ended=has_ended,
    )


def _verdict(phases: Mapping[str, float], regions: Mapping[str, float], recorder: Recorder, rank: str) -> str:
    if not recorder.progress.steps:
        return f"no step was seen: {CALL_STEP}"
    phase_verdict = verdict(phases, _idle_ratio(recorder), has_peers=bool(rank))
    if phase_verdict:
        return phase_verdict
    if len(regions) > 1:
        return f"the largest region is {max(regions, key=lambda name: regions[name])}"
    return "phases are not known; probe.data(batches) would measure the waits for data"


def _idle_ratio(recorder: Recorder) -> float | None:
    """Return the idle share of the GPU's measured time; None where that is not measured."""
    times = [
        (state, time_ns)
        for device in recorder.devices()
        for state, time_ns in recorder.counters(device, dropped_frames=0).device_time
    ]
    total_ns = sum(time_ns for _state, time_ns in times)
    return sum(time_ns for state, time_ns in times if state == "idle") / total_ns if total_ns else None


def _regions(recorder: Recorder) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for device in recorder.devices():
        for name, _launches, _gpu_ns, wall_ns in recorder.counters(device, dropped_frames=0).regions:
            seconds[name] = seconds.get(name, 0.0) + wall_ns / 1e9
    return seconds


def _gpu_peaks(recorder: Recorder) -> dict[str, int]:
    peaks = {str(device): dict(recorder.allocator(device).sizes).get("peak", 0) for device in recorder.devices()}
    return {device: peak for device, peak in peaks.items() if peak}


def _hottest(recorder: Recorder) -> tuple[HotKernel, ...]:
    totals: dict[str, tuple[float, int]] = {}
    for (_device, signature), spent in recorder.spent(()).items():
        if spent.timed:
            seconds, launches = totals.get(signature, (0.0, 0))
            totals[signature] = (
                seconds + spent.sum_ns / spent.timed * max(spent.launches, spent.timed) / 1e9,
                launches + spent.launches,
            )
    total_seconds = sum(seconds for seconds, _launches in totals.values())
    hottest = sorted(totals.items(), key=lambda item: -item[1][0])[:HOTTEST]
    return tuple(
        HotKernel(label(signature), launches, seconds, seconds / total_seconds if total_seconds else 0.0)
        for signature, (seconds, launches) in hottest
    )


def _process_peak_bytes(path: str = MEMORY_FILE) -> int | None:
    """Return the peak of this process's resident memory.

    `getrusage` would give that of the process which started it, where that is larger. Source: proc(5), VmHWM.
    """
    try:
        for line in Path(path).read_text("utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None
