"""Recording rules, in the classic dialect and, for native histograms, in the second.

Both record the same names, so that alerts work with either; load one of the two files. `sum without (instance)`: a node
that moves to another bridge or exporter instance keeps its series.
"""

from typing import Final

from kernelcast.grafana import inputs, promql
from kernelcast.grafana.rules import hours, objectives, serving, standing
from kernelcast.grafana.rules.model import MINUTE, Profile, RecordingRule, RuleGroup, duration
from kernelcast.wire.catalogue import OWN_NAMES, bridge, kernel, predictor
from kernelcast.wire.catalogue.devices import accelerator, device, energy

RATE_WINDOW_SECONDS: Final = 5 * MINUTE
_OPENING_SECONDS: Final = 20 * MINUTE
"""First minutes of a kernel with a launch configuration: warm-up, which a mean looks back on, then its baseline."""

BRIDGE_JOB: Final = inputs.BRIDGE_JOB
EXPORTER_JOB: Final = inputs.EXPORTER_JOB
PREDICTOR_JOB: Final = inputs.PREDICTOR_JOB

PROGRAM_MEASURED: Final = "program:kernelcast_probe_measured_seconds:share"
KERNEL_LAUNCHES: Final = "kernel:cuda_kernel_launches:rate"
KERNEL_SECONDS: Final = "kernel:cuda_kernel_duration_seconds_sum:rate"
KERNEL_TIMED: Final = "kernel:cuda_kernel_duration_seconds_count:rate"
KERNEL_MEAN: Final = "kernel:cuda_kernel_duration_seconds:mean"
KERNEL_P50: Final = "kernel:cuda_kernel_duration_seconds:p50"
KERNEL_P99: Final = "kernel:cuda_kernel_duration_seconds:p99"
KERNEL_BASELINE: Final = "kernel:cuda_kernel_duration_seconds:baseline"
KERNEL_BUSY: Final = "kernel:cuda_kernel_busy_seconds:rate"
KERNEL_SHARE: Final = "kernel:cuda_kernel_busy_seconds:share"
KERNEL_QUEUED: Final = "kernel:cuda_kernel_queue_delay_seconds:mean"
GAP_P50: Final = "program:cuda_launch_gap_seconds:p50"
GAP_P99: Final = "program:cuda_launch_gap_seconds:p99"
REGION_BUSY: Final = "region:cuda_region_gpu_seconds:share"
GPU_WATTS: Final = "gpu:DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION:watts"
KERNEL_WATTS: Final = "kernel:cuda_kernel_energy_estimate:watts"
STATE_SECONDS: Final = "state:cuda_device_time_seconds:rate"
MEMORY_USED: Final = "gpu:DCGM_FI_DEV_FB_USED:ratio"
CLOCK_EVENT: Final = "gpu:DCGM_FI_DEV_CLOCKS_EVENT_REASONS:bit"

ACCELERATOR_BUSY: Final = "accelerator:kernelcast_accelerator_utilization_ratio:max"
ACCELERATOR_MEMORY: Final = "accelerator:kernelcast_accelerator_memory_used_bytes:ratio"

LAG: Final = "topic:kernelcast_lag_messages:sum"

_OF_KERNELS: Final = "kernel, kernel_class"
_RULES_OF_A_GROUP: Final = 20
"""See `render`."""
_MILLIJOULES: Final = 1000
"""Per joule: NVML gives energy in millijoules."""
CLOCK_EVENT_BITS: Final = {"hw_slowdown": 8, "sw_thermal": 32, "hw_thermal": 64, "power_brake": 128}
"""NVML API reference, nvmlClocksEventReasons; 0x4, the power cap, is normal under load."""


def classic(profile: Profile) -> tuple[RuleGroup, ...]:
    """For text exposition, where a histogram is `_bucket`, `_sum` and `_count`."""
    window = profile.window(RATE_WINDOW_SECONDS)
    name = promql.name(kernel.DURATION)
    kernels = (
        _measured(window),
        RecordingRule(KERNEL_SECONDS, _seen(_rate(f"{name}_sum", window), _OF_KERNELS)),
        RecordingRule(KERNEL_TIMED, _seen(_rate(f"{name}_count", window), _OF_KERNELS)),
        # A kernel without buckets has only +Inf, and no quantile: NaN fails the comparison and drops out.
        RecordingRule(KERNEL_P50, f"histogram_quantile(0.5, {_rate(f'{name}_bucket', window)}) >= 0"),
        RecordingRule(KERNEL_P99, f"histogram_quantile(0.99, {_rate(f'{name}_bucket', window)}) >= 0"),
        *_gaps(_rate(f"{promql.name(kernel.LAUNCH_GAP)}_bucket", window)),
    )
    return (
        RuleGroup("kernelcast-kernels", (*kernels, *_derived(profile))),
        _devices(window),
        *_dcgm_names(),
        *standing.recordings(),
        *serving.recordings(window, GPU_WATTS),
        *hours.recordings(profile, window, GPU_WATTS, STATE_SECONDS),
        *_pipeline(profile),
    )


def native(profile: Profile) -> tuple[RuleGroup, ...]:
    """For native histograms, where the series is the histogram."""
    window = profile.window(RATE_WINDOW_SECONDS)
    durations = _rate(promql.name(kernel.DURATION), window)
    kernels = (
        _measured(window),
        RecordingRule(KERNEL_SECONDS, _seen(f"histogram_sum({durations})", _OF_KERNELS)),
        RecordingRule(KERNEL_TIMED, _seen(f"histogram_count({durations})", _OF_KERNELS)),
        RecordingRule(KERNEL_P50, f"histogram_quantile(0.5, {durations}) >= 0"),
        RecordingRule(KERNEL_P99, f"histogram_quantile(0.99, {durations}) >= 0"),
        *_gaps(_rate(promql.name(kernel.LAUNCH_GAP), window)),
    )
    return (
        RuleGroup("kernelcast-kernels", (*kernels, *_derived(profile))),
        _devices(window),
        *_dcgm_names(),
        *standing.recordings(),
        *serving.recordings(window, GPU_WATTS),
        *hours.recordings(profile, window, GPU_WATTS, STATE_SECONDS),
        *_pipeline(profile),
    )


def _dcgm_names() -> tuple[RuleGroup, ...]:
    """Series that an exporter writes under another of DCGM's names for a row get ours, which all other rules read."""
    rules = [RecordingRule(own, other) for other, own in OWN_NAMES.items()]
    return tuple(
        RuleGroup(
            f"kernelcast-dcgm-names-{first // _RULES_OF_A_GROUP + 1}", tuple(rules[first : first + _RULES_OF_A_GROUP])
        )
        for first in range(0, len(rules), _RULES_OF_A_GROUP)
    )


def _gaps(rates: str) -> tuple[RecordingRule, RecordingRule]:
    """Quantiles of what the GPU waits between two activities; `rates` are of the buckets, or of native histograms."""
    return (
        RecordingRule(GAP_P50, f"histogram_quantile(0.5, {rates}) >= 0"),
        RecordingRule(GAP_P99, f"histogram_quantile(0.99, {rates}) >= 0"),
    )


def _rate(name: str, window: str) -> str:
    return f"sum without (instance) (rate({name}[{window}]))"


def _measured(window: str) -> RecordingRule:
    """The share of time in which a program's kernels were measured; 1 for programs that do not count it."""
    measured, running = (_rate(promql.name(row), window) for row in (kernel.PROBE_MEASURED, kernel.PROBE_RUNNING))
    others = " or ".join(
        f"group without (instance, {labels}) ({promql.name(row)})"
        for row, labels in ((kernel.LAUNCHES, _OF_KERNELS), (kernel.DEVICE_TIME, "state"))
    )
    return RecordingRule(PROGRAM_MEASURED, f"{measured} / ({running} > 0) or {others}")


def _seen(rate: str, labels: str) -> str:
    """The rate per second of wall time of what was seen in the measured time; none where nothing was measured.

    Args:
        rate: Rate of totals of `wire.catalogue.windows`.
        labels: Its labels beside the program's.
    """
    return f"{rate} / ignoring ({labels}) group_left () ({PROGRAM_MEASURED} > 0)"


def _derived(profile: Profile) -> tuple[RecordingRule, ...]:
    """What follows from the sums alone, whichever dialect they came in."""
    window = profile.window(RATE_WINDOW_SECONDS)
    every = f"sum without ({_OF_KERNELS}) ({KERNEL_BUSY})"
    waited, counted, busy, wall = (
        _rate(promql.name(row), window)
        for row in (kernel.QUEUE_DELAY, kernel.QUEUE_DELAYS, kernel.REGION_GPU, kernel.REGION_WALL)
    )
    return (
        RecordingRule(KERNEL_LAUNCHES, _seen(_rate(promql.name(kernel.LAUNCHES), window), _OF_KERNELS)),
        RecordingRule(KERNEL_MEAN, f"{KERNEL_SECONDS} / ({KERNEL_TIMED} > 0)"),
        # Launches that were not timed count as long as those that were.
        RecordingRule(KERNEL_BUSY, f"{KERNEL_MEAN} * {KERNEL_LAUNCHES}"),
        RecordingRule(KERNEL_SHARE, f"{KERNEL_BUSY} / ignoring ({_OF_KERNELS}) group_left () ({every} > 0)"),
        RecordingRule(KERNEL_BASELINE, _baseline(profile)),
        RecordingRule(STATE_SECONDS, _seen(_rate(promql.name(kernel.DEVICE_TIME), window), "state")),
        RecordingRule(KERNEL_WATTS, _seen(_rate(promql.name(energy.KERNEL_ENERGY), window), _OF_KERNELS)),
        RecordingRule(KERNEL_QUEUED, f"{waited} / ({counted} > 0)"),
        RecordingRule(REGION_BUSY, f"{_seen(busy, 'region')} / ({wall} > 0)"),
    )


def _baseline(profile: Profile) -> str:
    """Usual mean duration of a kernel: the median of a day before, else of its first minutes, which is then kept.

    Only of the same work: none while the launch configuration or a version of the program is not what it was at that
    time. The kept one is what this rule recorded before.
    """
    before = f"[{duration(profile.baseline_window_seconds)}] offset {duration(profile.baseline_age_seconds)}"
    window = profile.window(RATE_WINDOW_SECONDS)
    first = f"quantile_over_time(0.5, {KERNEL_MEAN}[{window}] offset {window})"
    kept = f"last_over_time({KERNEL_BASELINE}[{profile.window(2 * RATE_WINDOW_SECONDS)}])"
    day_before = f"quantile_over_time(0.5, {KERNEL_MEAN}{before})"
    return (
        f"({day_before}{_of_same_work(duration(profile.baseline_age_seconds))}) "
        f"or (({kept} or {first}){_of_same_work(profile.window(_OPENING_SECONDS))})"
    )


def _of_same_work(age: str) -> str:
    """A condition on series of kernels: what the program ran on, and how it launched the kernel, is as old as that."""
    program = "Hostname, UUID, GPU_I_ID, program, rank"
    infos = ((promql.name(kernel.KERNEL_INFO), f"{program}, kernel"), (promql.name(kernel.PROGRAM_INFO), program))
    return "".join(f" unless on ({by}) ({info} unless {info} offset {age})" for info, by in infos)


def _devices(window: str) -> RuleGroup:
    used, free = promql.name(device.FB_USED), promql.name(device.FB_FREE)
    mask = promql.name(device.CLOCK_EVENT_REASONS)
    bits = (
        RecordingRule(CLOCK_EVENT, f"max without (instance) (floor({mask} / {bit}) % 2)", {"reason": reason})
        for reason, bit in CLOCK_EVENT_BITS.items()
    )
    memory = RecordingRule(MEMORY_USED, f"max without (instance) ({used} / ({used} + {free}))")
    power = RecordingRule(GPU_WATTS, f"{_rate(promql.name(device.TOTAL_ENERGY), window)} / {_MILLIJOULES}")
    return RuleGroup("kernelcast-devices", (memory, power, *bits, *_accelerators()))


_ACCELERATOR: Final = "job, accelerator, Hostname, index, modelName, UUID, GPU_I_ID, hpc_job"
_ITS_GPU: Final = "job, gpu, Hostname, modelName, UUID, GPU_I_ID, hpc_job"


def _accelerators() -> tuple[RecordingRule, RecordingRule]:
    """GPUs and TPUs under one name; also GPUs that only a dcgm-exporter measures."""
    own = {
        row: f"max by ({_ACCELERATOR}) ({promql.name(row)})"
        for row in (accelerator.UTILIZATION, accelerator.MEMORY_USED, accelerator.MEMORY_TOTAL)
    }
    used, free = promql.name(device.FB_USED), promql.name(device.FB_FREE)
    busy = f"{own[accelerator.UTILIZATION]} or {_as_accelerator(f'{promql.name(device.GPU_UTIL)} / 100')}"
    full = (
        f"{own[accelerator.MEMORY_USED]} / ({own[accelerator.MEMORY_TOTAL]} > 0) "
        f"or {_as_accelerator(f'{used} / ({used} + {free} > 0)')}"
    )
    return (RecordingRule(ACCELERATOR_BUSY, busy), RecordingRule(ACCELERATOR_MEMORY, full))


def _as_accelerator(expr: str) -> str:
    """Values of DCGM's rows, for GPUs without rows of accelerators."""
    named = f'label_replace(max by ({_ITS_GPU}) ({expr}), "index", "$1", "gpu", "(.*)")'
    alone = f"{named} unless on (Hostname, UUID) {promql.name(accelerator.MEMORY_USED)}"
    return f'max by ({_ACCELERATOR}) (label_replace({alone}, "accelerator", "gpu", "", ""))'


def _pipeline(profile: Profile) -> tuple[RuleGroup, ...]:
    """Nothing for a site without Kafka: its exporters are scraped alone."""
    jobs = profile.jobs
    if not jobs.bridge and not jobs.predictor:
        return ()
    waiting = f"sum without (partition) ({promql.name(bridge.LAG)}) or {promql.name(predictor.LAG)}"
    return (RuleGroup("kernelcast-pipeline", (RecordingRule(LAG, waiting), *objectives.recordings(profile))),)
