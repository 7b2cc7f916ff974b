"""Recording rules, in the classic dialect and, for native histograms, in the second.

Both record the same names, so that alerts work with either; load one of the two files. `sum without (instance)`: a node
that moves to another bridge or exporter instance keeps its series.
"""

from typing import Final

from kernelcast.grafana import inputs, promql
from kernelcast.grafana.rules import hours, objectives, serving, standing
from kernelcast.grafana.rules.model import (
    MINUTE,
    SLOW_SECONDS,
    Profile,
    RecordingRule,
    RuleGroup,
    duration,
    lately,
)
from kernelcast.wire.catalogue import OWN_NAMES, bridge, kernel, predictor
from kernelcast.wire.catalogue.devices import accelerator, device

RATE_WINDOW_SECONDS: Final = 5 * MINUTE
_OPENING_SECONDS: Final = 20 * MINUTE
"""First minutes of a kernel with a launch configuration: warm-up, which a mean looks back on, then its baseline."""

BRIDGE_JOB: Final = inputs.BRIDGE_JOB
EXPORTER_JOB: Final = inputs.EXPORTER_JOB
PREDICTOR_JOB: Final = inputs.PREDICTOR_JOB

PROGRAM_MEASURED: Final = "program:kernelcast_probe_measured_seconds:share"
PROGRAM_BUSY: Final = "program:cuda_kernel_busy_seconds:rate"
KERNEL_MEAN: Final = "kernel:cuda_kernel_duration_seconds:mean"
KERNEL_BASELINE: Final = "kernel:cuda_kernel_duration_seconds:baseline"
KERNEL_BUSY: Final = "kernel:cuda_kernel_busy_seconds:rate"
KERNEL_SHARE: Final = "kernel:cuda_kernel_busy_seconds:share"
GPU_WATTS: Final = "gpu:DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION:watts"
STATE_SECONDS: Final = "state:cuda_device_time_seconds:rate"
MEMORY_USED: Final = "gpu:DCGM_FI_DEV_FB_USED:ratio"
CLOCK_EVENT: Final = "gpu:DCGM_FI_DEV_CLOCKS_EVENT_REASONS:bit"

ACCELERATOR_BUSY: Final = "accelerator:kernelcast_accelerator_utilization_ratio:max"
ACCELERATOR_MEMORY: Final = "accelerator:kernelcast_accelerator_memory_used_bytes:ratio"

LAG: Final = "topic:kernelcast_lag_messages:sum"

_OF_KERNELS: Final = "kernel, kernel_class"
_RULES_OF_A_GROUP: Final = 20
"""See `render`."""
_LEAST_SHARE: Final = 0.01
"""Share of its program's kernel time from which a kernel is recorded; `Thresholds.kernel_share_ratio` is above it."""
_MILLIJOULES: Final = 1000
"""Per joule: NVML gives energy in millijoules."""
CLOCK_EVENT_BITS: Final = {"hw_slowdown": 8, "sw_thermal": 32, "hw_thermal": 64, "power_brake": 128}
"""NVML API reference, nvmlClocksEventReasons; 0x4, the power cap, is normal under load."""


def classic(profile: Profile) -> tuple[RuleGroup, ...]:
    """For text exposition, where a histogram is `_bucket`, `_sum` and `_count`."""
    window, name = profile.window(RATE_WINDOW_SECONDS), promql.name(kernel.DURATION)
    return _groups(profile, seconds=f"rate({name}_sum[{window}])", timed=f"rate({name}_count[{window}])")


def native(profile: Profile) -> tuple[RuleGroup, ...]:
    """For native histograms, where the series is the histogram."""
    durations = f"rate({promql.name(kernel.DURATION)}[{profile.window(RATE_WINDOW_SECONDS)}])"
    return _groups(profile, seconds=f"histogram_sum({durations})", timed=f"histogram_count({durations})")


def _groups(profile: Profile, *, seconds: str, timed: str) -> tuple[RuleGroup, ...]:
    """All recordings.

    Args:
        profile: Its windows.
        seconds: GPU time a second of the timed launches of each series of kernels.
        timed: The number of these launches a second.
    """
    window = profile.window(RATE_WINDOW_SECONDS)
    return (
        RuleGroup("kernelcast-kernels", _kernels(window, seconds, timed), MINUTE),
        _devices(window),
        *_dcgm_names(),
        *standing.recordings(),
        *serving.recordings(window, GPU_WATTS),
        *hours.recordings(profile, window, GPU_WATTS, STATE_SECONDS),
        *_pipeline(profile),
        _baselines(profile),
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


def _baselines(profile: Profile) -> RuleGroup:
    """What looks back over hours; it changes slowly and costs much, so it is evaluated every five minutes."""
    rules = (RecordingRule(KERNEL_BASELINE, _baseline(profile)), standing.usual_power(profile))
    burns = objectives.slow_recordings(profile) if _has_pipeline(profile) else ()
    return RuleGroup("kernelcast-baselines", (*rules, *burns), SLOW_SECONDS)


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


def _kernels(window: str, seconds: str, timed: str) -> tuple[RecordingRule, ...]:
    """Kernels with a share of their program's time that matters; the other series of a large fleet are not recorded."""
    # Launches that were not timed count as long as those that were.
    busy = f"{seconds} / ({timed} > 0) * rate({promql.name(kernel.LAUNCHES)}[{window}])"
    program = f"sum without (instance, {_OF_KERNELS}) ({busy}) / ({PROGRAM_MEASURED} > 0)"
    least = f"ignoring ({_OF_KERNELS}) group_left () ({_LEAST_SHARE:g} * {PROGRAM_BUSY})"
    mean = f"sum without (instance) ({seconds}) / (sum without (instance) ({timed}) > 0)"
    return (
        _measured(window),
        RecordingRule(PROGRAM_BUSY, program),
        RecordingRule(KERNEL_BUSY, f"({_seen(f'sum without (instance) ({busy})', _OF_KERNELS)}) >= {least}"),
        RecordingRule(KERNEL_MEAN, f"{mean} and {KERNEL_BUSY}"),
        RecordingRule(KERNEL_SHARE, f"{KERNEL_BUSY} / ignoring ({_OF_KERNELS}) group_left () ({PROGRAM_BUSY} > 0)"),
        RecordingRule(STATE_SECONDS, _seen(_rate(promql.name(kernel.DEVICE_TIME), window), "state")),
    )


def _baseline(profile: Profile) -> str:
    """Usual mean duration of a kernel: the median of a day before, else of its first minutes, which is then kept.

    Only of the same work: none while the launch configuration or a version of the program is not what it was at that
    time. The kept one is what this rule recorded before.
    """
    before = f"[{duration(profile.baseline_window_seconds)}] offset {duration(profile.baseline_age_seconds)}"
    window = profile.window(RATE_WINDOW_SECONDS)
    first = f"quantile_over_time(0.5, {KERNEL_MEAN}[{window}] offset {window})"
    kept = lately(KERNEL_BASELINE, profile)
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
    if not _has_pipeline(profile):
        return ()
    waiting = f"sum without (partition) ({promql.name(bridge.LAG)}) or {promql.name(predictor.LAG)}"
    return (RuleGroup("kernelcast-pipeline", (RecordingRule(LAG, waiting), *objectives.recordings(profile))),)


def _has_pipeline(profile: Profile) -> bool:
    return bool(profile.jobs.bridge or profile.jobs.predictor)
