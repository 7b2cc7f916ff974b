"""Signals of programs, such as their share of idle time, from the windows of their series and of their GPUs.

`Engine.signals` computes them every half minute; `diagnosis` applies the rules of the catalogue to them.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from kernelcast.predictor.series.subjects import DURATION, DeviceKey, Form, Subject
from kernelcast.predictor.series.windows import Windows
from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND
from kernelcast.predictor.tuning.diagnosis import ProgramOnDevice
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device, profiling
from kernelcast.wire.catalogue.diagnosis.rules import Signal
from kernelcast.wire.kernels import COMPUTE

SPAN_SECONDS: Final = 300
"""Time over which a signal is a mean."""
MIN_VALUES: Final = 3
"""Values within the span that make a mean."""
CHUNK: Final = 4096
"""Series that are read while the lock is held once."""
DATA_REGIONS: Final = frozenset({"data", "dataloader", "next_batch"})
_MIN_RANKS: Final = 2
"""Ranks of a program that can be compared; one alone has no spread."""

_DEVICE_TIME: Final = kernel.DEVICE_TIME.prometheus_name
_LAUNCHES: Final = kernel.LAUNCHES.prometheus_name
_GAP: Final = kernel.LAUNCH_GAP.prometheus_name
_WAIT: Final = kernel.SYNC_WAIT.prometheus_name
_COPIED: Final = kernel.MEMCPY_BYTES.prometheus_name
_REGION: Final = kernel.REGION_WALL.prometheus_name
_PHASE: Final = kernel.PHASE_SECONDS.prometheus_name
_USED: Final = device.FB_USED.prometheus_name
_FREE: Final = device.FB_FREE.prometheus_name
_PROFILED: Final[Mapping[str, Signal]] = {
    profiling.SM_ACTIVE.prometheus_name: Signal.SM_ACTIVE,
    profiling.SM_OCCUPANCY.prometheus_name: Signal.SM_OCCUPANCY,
    profiling.DRAM_ACTIVE.prometheus_name: Signal.DRAM_ACTIVE,
    profiling.PIPE_TENSOR_ACTIVE.prometheus_name: Signal.TENSOR_ACTIVE,
    profiling.PIPE_FP32_ACTIVE.prometheus_name: Signal.FP32_ACTIVE,
}
_OF_PROGRAMS: Final = frozenset({_DEVICE_TIME, _GAP, _WAIT, _COPIED, _REGION, _PHASE, _LAUNCHES, DURATION})
_OF_DEVICES: Final = frozenset({_USED, _FREE, *_PROFILED})


_OfRank: TypeAlias = tuple[str, str]
"""Rank and kernel."""


@dataclass(slots=True)
class _Sums:
    """Means of one program's series on one GPU, by label."""

    states: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    compute_of_rank: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    copied: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    regions: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    phases: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    seconds: defaultdict[_OfRank, float] = field(default_factory=lambda: defaultdict(float))
    launches: defaultdict[_OfRank, float] = field(default_factory=lambda: defaultdict(float))
    gaps: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)


def read_signals(windows: Windows, lock: AbstractContextManager[Any]) -> dict[ProgramOnDevice, dict[Signal, float]]:
    """Compute the signals of every program on every GPU; a signal that is not measured is left out.

    Args:
        windows: The recent past.
        lock: Guards the windows; it is held for short parts of the work.
    """
    with lock:
        every = list(windows.items())
    wanted = [(subject, row) for subject, row in every if subject.metric in _OF_PROGRAMS | _OF_DEVICES]
    sums: defaultdict[ProgramOnDevice, _Sums] = defaultdict(_Sums)
    devices: defaultdict[DeviceKey, dict[str, float]] = defaultdict(dict)
    for subject, mean, peak in _recent(windows, lock, wanted):
        if subject.metric in _OF_DEVICES:
            devices[subject.device][subject.metric] = peak if subject.metric == _USED else mean
        elif subject.program:
            _ADD[subject.metric](sums[ProgramOnDevice(subject.program, subject.device)], subject, mean)
    spreads = _rank_spreads(sums)
    return {
        where: {
            **_of_program(program_sums),
            **_of_device(devices.get(where.device, {})),
            **spreads.get(where.program, {}),
        }
        for where, program_sums in sums.items()
    }


def _recent(
    windows: Windows, lock: AbstractContextManager[Any], wanted: list[tuple[Subject, int]]
) -> Iterator[tuple[Subject, float, float]]:
    """Mean and largest value of each series in the last minutes, by its host's clock; none of those with too few."""
    count = min(max(round(SPAN_SECONDS * NANOSECONDS_PER_SECOND / windows.interval_ns), MIN_VALUES), windows.points)
    with lock:
        newest = windows.newest[np.array([row for _, row in wanted], np.int64)].tolist()
    latest: dict[str, int] = {}
    for (subject, _), interval in zip(wanted, newest, strict=True):
        latest[subject.device[0]] = max(interval, latest.get(subject.device[0], interval))
    for begin in range(0, len(wanted), CHUNK):
        part = wanted[begin : begin + CHUNK]
        last = np.array([latest[subject.device[0]] for subject, _ in part], np.int64)
        with lock:
            # A row may have been given to another series since.
            held = np.array([windows.subject(row) is subject for subject, row in part], np.bool_)
            values = windows.read(np.array([row for _, row in part], np.int64), last, count).astype(np.float64)
        known = np.isfinite(values) & held[:, None]
        counts = known.sum(axis=1)
        means = np.where(known, values, 0.0).sum(axis=1) / np.maximum(counts, 1)
        peaks = np.where(known, values, -np.inf).max(axis=1)
        for place in np.flatnonzero(counts >= MIN_VALUES).tolist():
            yield part[place][0], float(means[place]), float(peaks[place])


def _add_state(sums: _Sums, subject: Subject, mean: float) -> None:
    state = subject.label("state")
    sums.states[state] += mean
    if state in {"compute", "overlap"}:
        sums.compute_of_rank[subject.label("rank")] += mean


def _add_copied(sums: _Sums, subject: Subject, mean: float) -> None:
    sums.copied[subject.label("pinned")] += mean


def _add_region(sums: _Sums, subject: Subject, mean: float) -> None:
    sums.regions[subject.label("region")] += mean


def _add_phase(sums: _Sums, subject: Subject, mean: float) -> None:
    sums.phases[subject.label("phase")] += mean


def _add_launches(sums: _Sums, subject: Subject, mean: float) -> None:
    if subject.label("kernel_class") in {COMPUTE, ""}:
        sums.launches[subject.label("rank"), subject.label("kernel")] += mean


def _add_duration(sums: _Sums, subject: Subject, mean: float) -> None:
    if subject.form is Form.MEAN and subject.label("kernel_class") in {COMPUTE, ""}:
        sums.seconds[subject.label("rank"), subject.label("kernel")] = mean


def _add_gap(sums: _Sums, _subject: Subject, mean: float) -> None:
    sums.gaps.append(mean)


def _add_wait(sums: _Sums, _subject: Subject, mean: float) -> None:
    sums.waits.append(mean)


_ADD: Final[Mapping[str, Callable[[_Sums, Subject, float], None]]] = {
    _DEVICE_TIME: _add_state,
    _COPIED: _add_copied,
    _REGION: _add_region,
    _PHASE: _add_phase,
    _LAUNCHES: _add_launches,
    DURATION: _add_duration,
    _GAP: _add_gap,
    _WAIT: _add_wait,
}


def _of_program(sums: _Sums) -> dict[Signal, float]:
    signals: dict[Signal, float] = {}
    wall = sum(sums.states.values())
    if wall > 0:
        signals[Signal.IDLE_SHARE] = sums.states["idle"] / wall
        signals[Signal.COPY_SHARE] = sums.states["copy"] / wall
        signals[Signal.COLLECTIVE_SHARE] = sums.states["collective"] / wall
    launched = sum(sums.launches[name] for name in sums.seconds)
    if launched > 0:
        spent = sum(seconds * sums.launches[name] for name, seconds in sums.seconds.items())
        signals[Signal.KERNEL_SECONDS] = spent / launched
    if sums.gaps:
        signals[Signal.LAUNCH_GAP_SECONDS] = sum(sums.gaps) / len(sums.gaps)
    if sums.waits:
        signals[Signal.SYNC_WAIT_SHARE] = sum(sums.waits)
    copied = sum(sums.copied.values())
    if copied > 0 and sums.copied.keys() - {""}:
        signals[Signal.PAGEABLE_SHARE] = sums.copied["false"] / copied
    in_phases, in_regions = sum(sums.phases.values()), sum(sums.regions.values())
    if in_phases > 0 and "data" in sums.phases:
        signals[Signal.DATA_WAIT_SHARE] = sums.phases["data"] / in_phases
    elif in_regions > 0 and DATA_REGIONS & sums.regions.keys():
        signals[Signal.DATA_WAIT_SHARE] = sum(sums.regions[name] for name in DATA_REGIONS) / in_regions
    return signals


def _of_device(values: Mapping[str, float]) -> dict[Signal, float]:
    signals = {signal: values[name] for name, signal in _PROFILED.items() if name in values}
    total = values.get(_USED, np.nan) + values.get(_FREE, np.nan)
    if total > 0:
        signals[Signal.MEMORY_USED_RATIO] = min(values[_USED] / total, 1.0)
    return signals


def _rank_spreads(sums: Mapping[ProgramOnDevice, _Sums]) -> dict[str, dict[Signal, float]]:
    ranks: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for where, program_sums in sums.items():
        ranks[where.program].update(program_sums.compute_of_rank)
    return {
        program: {Signal.RANK_SPREAD: (max(compute.values()) - min(compute.values())) / max(compute.values())}
        for program, compute in ranks.items()
        if len(compute) >= _MIN_RANKS and max(compute.values()) > 0
    }
