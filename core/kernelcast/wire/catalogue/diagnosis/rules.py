"""Rules that say what to change in a program, as a table: signals, thresholds, advice, and where each comes from.

The predictor computes the signals and tests the rules for each program on each GPU (`tuning/diagnosis.py`); its
tuning rules take the advice's kinds and direction. A rule holds when all its thresholds hold. A threshold on a signal
that is not measured does not hold, and the signal is published as missing. No rule states a gain: a figure from the
literature is no figure of this program.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device, profiling


class Signal(StrEnum):
    """Figures of one program on one GPU, over the last 5 minutes."""

    IDLE_SHARE = "idle_share"
    COPY_SHARE = "copy_share"
    COLLECTIVE_SHARE = "collective_share"
    KERNEL_SECONDS = "kernel_seconds"
    LAUNCH_GAP_SECONDS = "launch_gap_seconds"
    SYNC_WAIT_SHARE = "sync_wait_share"
    PAGEABLE_SHARE = "pageable_share"
    DATA_WAIT_SHARE = "data_wait_share"
    RANK_SPREAD = "rank_spread"
    SM_ACTIVE = "sm_active"
    SM_OCCUPANCY = "sm_occupancy"
    DRAM_ACTIVE = "dram_active"
    TENSOR_ACTIVE = "tensor_active"
    FP32_ACTIVE = "fp32_active"
    MEMORY_USED_RATIO = "memory_used_ratio"


@dataclass(frozen=True, slots=True)
class SignalSource:
    """Origin of a signal.

    Attributes:
        metric: Series that it is computed from.
        help: Definition, with its unit.
        how_to_get: Remedy if it is missing.
    """

    metric: str
    help: str
    how_to_get: str


_TIMING: Final = "run the program with the probe and CUPTI; events see no idle time"
_PROFILING: Final = "ask for the profiling rows in exporter.device_metrics; they need Hopper or newer"
_NVML: Final = "run the exporter on the node of the GPU"

SIGNALS: Final[Mapping[Signal, SignalSource]] = MappingProxyType(
    {
        Signal.IDLE_SHARE: SignalSource(kernel.DEVICE_TIME.prometheus_name, "Idle GPU time over all time.", _TIMING),
        Signal.COPY_SHARE: SignalSource(
            kernel.DEVICE_TIME.prometheus_name, "GPU time of copies that nothing overlaps, over all time.", _TIMING
        ),
        Signal.COLLECTIVE_SHARE: SignalSource(
            kernel.DEVICE_TIME.prometheus_name, "GPU time of collectives that nothing overlaps, over all time.", _TIMING
        ),
        Signal.KERNEL_SECONDS: SignalSource(
            kernel.DURATION.prometheus_name, "Mean duration of the program's kernels, seconds.", "run it with the probe"
        ),
        Signal.LAUNCH_GAP_SECONDS: SignalSource(
            kernel.LAUNCH_GAP.prometheus_name, "Mean idle time between two activities, seconds.", _TIMING
        ),
        Signal.SYNC_WAIT_SHARE: SignalSource(
            kernel.SYNC_WAIT.prometheus_name, "Time in which threads wait for the GPU, seconds a second.", _TIMING
        ),
        Signal.PAGEABLE_SHARE: SignalSource(
            kernel.MEMCPY_BYTES.prometheus_name, "Copied bytes whose host memory is not pinned, over all.", _TIMING
        ),
        Signal.DATA_WAIT_SHARE: SignalSource(
            kernel.PHASE_SECONDS.prometheus_name,
            "Time of the phase data over that of all phases; without phases, wall time in regions named data, "
            "dataloader or next_batch, over that in all regions.",
            "load with PyTorch's DataLoader, or with kernelcast.probe.data(batches)",
        ),
        Signal.RANK_SPREAD: SignalSource(
            kernel.DEVICE_TIME.prometheus_name,
            "Difference of compute time between the busiest and the least busy rank, over the busiest.",
            "run at least two ranks with the probe",
        ),
        Signal.SM_ACTIVE: SignalSource(profiling.SM_ACTIVE.prometheus_name, "Ratio of busy SMs.", _PROFILING),
        Signal.SM_OCCUPANCY: SignalSource(profiling.SM_OCCUPANCY.prometheus_name, "Ratio of warps.", _PROFILING),
        Signal.DRAM_ACTIVE: SignalSource(profiling.DRAM_ACTIVE.prometheus_name, "Ratio of memory cycles.", _PROFILING),
        Signal.TENSOR_ACTIVE: SignalSource(
            profiling.PIPE_TENSOR_ACTIVE.prometheus_name, "Ratio of cycles of the tensor pipe.", _PROFILING
        ),
        Signal.FP32_ACTIVE: SignalSource(
            profiling.PIPE_FP32_ACTIVE.prometheus_name, "Ratio of cycles of the FP32 pipe.", _PROFILING
        ),
        Signal.MEMORY_USED_RATIO: SignalSource(
            device.FB_USED.prometheus_name, "Largest use of GPU memory over its size.", _NVML
        ),
    }
)


class Direction(StrEnum):
    """Direction in which the value of a tunable changes."""

    UP = "up"
    DOWN = "down"
    ON = "on"


@dataclass(frozen=True, slots=True)
class Threshold:
    """One comparison of a signal: at least, or below, a limit."""

    signal: Signal
    limit: float
    at_least: bool = True


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice of a rule.

    Attributes:
        text: One sentence, for people.
        kinds: Kinds of tunables that carry it out.
        direction: Direction in which their value changes.
        changes_results: Whether the program's results may change; a person has to approve it.
    """

    text: str
    kinds: tuple[str, ...] = ()
    direction: Direction = Direction.UP
    changes_results: bool = False


@dataclass(frozen=True, slots=True)
class DiagnosisRule:
    """One rule.

    Attributes:
        name: Its name, as published.
        thresholds: All must hold; the value of the first one's signal is published as evidence.
        advice: The proposed change.
        source: Origin of the thresholds; `own`: chosen by us.
    """

    name: str
    thresholds: tuple[Threshold, ...]
    advice: Advice
    source: str

    @property
    def evidence(self) -> Signal:
        """Signal of the first threshold; it is published as the reason."""
        return self.thresholds[0].signal


def _at_least(signal: Signal, limit: float) -> Threshold:
    return Threshold(signal, limit)


def _below(signal: Signal, limit: float) -> Threshold:
    return Threshold(signal, limit, at_least=False)


_TRIAGE: Final = "NVIDIA TensorRT-LLM, perf-host-analysis thresholds; Nsight Compute skill"
_KINETO: Final = "PyTorch Profiler, tb_plugin data.py"

RULES: Final[tuple[DiagnosisRule, ...]] = (
    DiagnosisRule(
        "memory_nearly_full",
        (_at_least(Signal.MEMORY_USED_RATIO, 0.95),),
        Advice(
            "Halve the batch size or recompute activations: GPU memory is nearly full.",
            kinds=("batch_size",),
            direction=Direction.DOWN,
            changes_results=True,
        ),
        f"{_KINETO} (0.9); own (0.95)",
    ),
    DiagnosisRule(
        "input_bound",
        (_at_least(Signal.DATA_WAIT_SHARE, 0.05),),
        Advice(
            "Use more loader workers or prefetch more: the program waits for its input.",
            kinds=("loader_workers", "prefetch"),
        ),
        _KINETO,
    ),
    DiagnosisRule(
        "communication_bound",
        (_at_least(Signal.COLLECTIVE_SHARE, 0.1),),
        Advice(
            "Use larger buckets, or accumulate gradients: collectives are not hidden behind compute.",
            kinds=("bucket_size",),
        ),
        _KINETO,
    ),
    DiagnosisRule(
        "transfer_bound",
        (_at_least(Signal.COPY_SHARE, 0.4),),
        Advice(
            "Keep data on the GPU, or copy from a pinned pool on a stream of its own: copies take most of the time.",
            kinds=("pinned_memory",),
            direction=Direction.ON,
        ),
        "KempnerPulse, docs/classification.md (40 %)",
    ),
    DiagnosisRule(
        "pageable_copies",
        (_at_least(Signal.PAGEABLE_SHARE, 0.5), _at_least(Signal.COPY_SHARE, 0.05)),
        Advice(
            "Pin the host memory that is copied from: pageable copies block the program.",
            kinds=("pinned_memory",),
            direction=Direction.ON,
        ),
        "CUDA C++ Best Practices Guide, section Pinned Memory; shares: own",
    ),
    DiagnosisRule(
        "launch_bound",
        (
            _at_least(Signal.IDLE_SHARE, 0.3),
            _below(Signal.KERNEL_SECONDS, 10e-6),
            _below(Signal.LAUNCH_GAP_SECONDS, 1e-4),
        ),
        Advice(
            "Use CUDA graphs or fuse kernels: kernels are shorter than the time to launch them.",
            kinds=("cuda_graph",),
            direction=Direction.ON,
        ),
        f"{_TRIAGE}; gap: own",
    ),
    DiagnosisRule(
        "host_bound",
        (_at_least(Signal.IDLE_SHARE, 0.5), _at_least(Signal.LAUNCH_GAP_SECONDS, 1e-4)),
        Advice("Time the host's part of a step: the GPU waits for the program in long gaps."),
        "Holistic Trace Analysis, host wait in the breakdown of idle time; limits: own",
    ),
    DiagnosisRule(
        "host_synchronisation",
        (_at_least(Signal.SYNC_WAIT_SHARE, 0.1), _at_least(Signal.IDLE_SHARE, 0.1)),
        Advice("Drop calls that wait for the GPU (.item(), .cpu(), synchronize): it idles while the host catches up."),
        "Holistic Trace Analysis, host wait in the breakdown of idle time; shares: own",
    ),
    DiagnosisRule(
        "occupancy_limits_bandwidth",
        (_at_least(Signal.DRAM_ACTIVE, 0.5), _below(Signal.DRAM_ACTIVE, 0.8), _below(Signal.SM_OCCUPANCY, 0.3)),
        Advice("Raise occupancy: memory is busy and few warps hide its latency.", kinds=("block_size",)),
        "DCGM, profiling metrics (a peak of DRAM_ACTIVE is about 0.8); lower limits: own",
    ),
    DiagnosisRule(
        "idle_multiprocessors",
        (_below(Signal.SM_ACTIVE, 0.5), _below(Signal.MEMORY_USED_RATIO, 0.8), _below(Signal.IDLE_SHARE, 0.1)),
        Advice(
            "Use larger grids or a larger batch: more than half of the multiprocessors idle while kernels run.",
            kinds=("batch_size",),
            changes_results=True,
        ),
        "DCGM, profiling metrics (0.8 is needed for an effective use)",
    ),
    DiagnosisRule(
        "room_for_larger_batch",
        (
            _at_least(Signal.IDLE_SHARE, 0.5),
            _below(Signal.MEMORY_USED_RATIO, 0.8),
            _below(Signal.DATA_WAIT_SHARE, 0.05),
        ),
        Advice(
            "Try a batch twice as large: the GPU idles half of the time, and its memory has room.",
            kinds=("batch_size",),
            changes_results=True,
        ),
        f"{_KINETO} (busy below 50 %, memory below 80 %); Lightning, BatchSizeFinder",
    ),
    DiagnosisRule(
        "tensor_cores_unused",
        (_at_least(Signal.FP32_ACTIVE, 0.1), _below(Signal.TENSOR_ACTIVE, 0.01)),
        Advice(
            "Try TF32, then BF16: matrix work runs on the FP32 pipe alone, if there is any.",
            kinds=("precision",),
            direction=Direction.ON,
            changes_results=True,
        ),
        "NVIDIA, TF32 in the A100 (blog); shares: own",
    ),
    DiagnosisRule(
        "unequal_ranks",
        (_at_least(Signal.RANK_SPREAD, 0.1),),
        Advice("Divide the work again: ranks wait for the busiest one."),
        "own",
    ),
)
"""In the order of urgency: the first rule that holds is named first."""

UNMEASURED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "compute and memory throughput of a kernel against its peak": "Nsight Compute alone measures it",
        "waves of a launch, tail effect": "the grid is known, the number of resident blocks is not",
    }
)
"""Signals that rules of other tools use and no part of kernelcast emits, with the reason."""
