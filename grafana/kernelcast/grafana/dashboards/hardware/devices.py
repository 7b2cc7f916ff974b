"""Panels of the page `gpu` about the GPUs themselves, by DCGM's metrics: load, temperature, power, clocks."""

from collections.abc import Collection
from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.inputs import Thresholds
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import (
    Axis,
    LineStyle,
    PanelText,
    Placed,
    limits,
    stat,
    state_timeline,
    time_series,
)
from kernelcast.grafana.model.targets import Query
from kernelcast.wire.catalogue.devices import device, profiling
from kernelcast.wire.catalogue.model import Metric

GPU: Final = "{{Hostname}} GPU {{gpu}}"
INSTANCE: Final = f"{GPU} {{{{GPU_I_PROFILE}}}} {{{{GPU_I_ID}}}}"
"""A MIG instance; of an undivided GPU nothing stands behind its number."""

_NANO: Final = "1e9"
"""Nanoseconds in a second: DCGM counts violations so."""
_THIRD, _LOW = 8, 6
"""Width and height of the graphs on the first screen."""
_THROTTLING: Final = (
    (8, "hardware slowdown"),
    (32, "software thermal"),
    (64, "hardware thermal"),
    (128, "power brake"),
)
"""Bits of the clock event mask that mean trouble. 0x4, the power cap, is normal under load, so it is not among them.

Source: NVML API reference, nvmlClocksEventReasons."""

_MILD: Final = "software thermal"
"""The driver keeps the GPU from becoming too hot; the others mean that it was, or that power failed."""


def figures() -> tuple[Placed, ...]:
    """Of all GPUs chosen: mean temperature, total power, memory of the fullest."""
    heat = PanelText("Mean temperature", "Mean core temperature of the GPUs chosen.")
    power = PanelText("Total power", "Sum of the power draw of the GPUs chosen.")
    return (
        stat(heat, [Query(f"avg({_whole(device.GPU_TEMP)})")], Axis("celsius", decimals=0), width=4, height=3),
        stat(power, [Query(f"sum({_whole(device.POWER_USAGE)})")], Axis("watt", low=0), width=4, height=3),
        _memory_in_use(),
    )


def _memory_in_use() -> Placed:
    text = PanelText(
        "Fullest memory",
        "Share of usable memory in use: of the fullest GPU or MIG instance of those chosen.",
        runbooks=("KernelcastGpuMemoryNearlyFull",),
    )
    used, free = promql.series(device.FB_USED), promql.series(device.FB_FREE)
    near = ((None, "text"), (Thresholds().memory_used_ratio, "orange"))
    axis = Axis("percentunit", low=0, high=1, decimals=0, thresholds=near)
    return stat(text, [Query(f"max({used} / ({used} + {free}))")], axis, width=4, height=3)


def side_by_side() -> tuple[Placed, ...]:
    """All GPUs chosen, of all nodes chosen, in each graph."""
    return (_temperature(), _power(), _clocks(), _utilisation(), _tensor_active(), _memory())


def load() -> Row:
    """Load in detail."""
    return Row("Load in detail", (_engine(), _pipes(), _interface(), _memory_temperature()), collapsed=True)


def limits_row() -> Row:
    """Reasons for reduced clocks, and the time that they cost."""
    return Row("Clocks and limits", (throttling(), _limited()), collapsed=True)


def _whole(metric: Metric) -> str:
    """A row of each GPU, once."""
    return f"max by (Hostname, gpu) ({promql.series(metric)})"


def each(metric: Metric) -> str:
    """A row of each GPU or MIG instance, once: where several pods or jobs share a GPU it has a series for each."""
    return f"max by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE) ({promql.series(metric)})"


def each_rate(metric: Metric) -> str:
    """The rate of a counter of each GPU, once."""
    return f"max by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE) ({promql.rate(promql.series(metric))})"


def _utilisation() -> Placed:
    text = PanelText(
        "GPU utilisation",
        "Share of time in which at least one kernel ran. It does not show how well the GPU is used: see the profiling "
        "rows, device time and kernels. The driver reports it for undivided GPUs only.",
    )
    return time_series(
        text, [Query(each(device.GPU_UTIL), GPU)], Axis("percent", low=0, high=100), width=_THIRD, height=_LOW
    )


def _engine() -> Placed:
    text = PanelText(
        "Engine and multiprocessors busy",
        "Share of time in which the compute engine was busy, and of cycles in which a multiprocessor had a warp; also "
        "of MIG instances. Hopper and later.",
    )
    queries = [
        Query(each(profiling.GR_ENGINE_ACTIVE), f"{INSTANCE} engine"),
        Query(each(profiling.SM_ACTIVE), f"{INSTANCE} multiprocessors"),
        Query(each(profiling.SM_OCCUPANCY), f"{INSTANCE} warps resident"),
        liveness.absent((profiling.GR_ENGINE_ACTIVE, profiling.SM_ACTIVE)),
    ]
    return time_series(text, queries, Axis("percentunit", low=0, high=1))


def _tensor_active() -> Placed:
    text = PanelText(
        "Tensor pipe busy",
        "Share of cycles in which the tensor pipe worked, also of MIG instances: how much of the GPU's arithmetic a "
        "program uses.",
    )
    queries = [
        Query(each(profiling.PIPE_TENSOR_ACTIVE), INSTANCE),
        liveness.absent((profiling.PIPE_TENSOR_ACTIVE,)),
    ]
    return time_series(text, queries, Axis("percentunit", low=0, high=1), width=_THIRD, height=_LOW)


def _pipes() -> Placed:
    text = PanelText(
        "Pipes busy",
        "Share of cycles in which the tensor and arithmetic pipes worked. High values mean that arithmetic limits the "
        "program.",
    )
    pipes = (
        (profiling.PIPE_TENSOR_ACTIVE, "tensor"),
        (profiling.PIPE_FP64_ACTIVE, "fp64"),
        (profiling.PIPE_FP32_ACTIVE, "fp32"),
        (profiling.PIPE_FP16_ACTIVE, "fp16"),
        (profiling.PIPE_INT_ACTIVE, "integer"),
    )
    queries = [Query(each(row), f"{INSTANCE} {word}") for row, word in pipes]
    return time_series(text, queries, Axis("percentunit", low=0, high=1))


def _interface() -> Placed:
    text = PanelText(
        "Device memory busy",
        "Share of cycles in which the memory interface carried data (profiling), and share of time in which memory "
        "was read or written at all (percent, coarser).",
    )
    queries = [
        Query(each(profiling.DRAM_ACTIVE), f"{INSTANCE} interface"),
        Query(f"{each(device.MEM_COPY_UTIL)} / 100", f"{GPU} utilisation"),
    ]
    return time_series(text, queries, Axis("percentunit", low=0, high=1))


def _temperature() -> Placed:
    text = PanelText("GPU temperature", "Core temperature, and the temperature at which the driver slows the GPU down.")
    limit = Query(f"min by (modelName) ({promql.series(device.SLOWDOWN_TEMP)})", "{{modelName}} slowdown")
    queries = [Query(each(device.GPU_TEMP), GPU), limit]
    style = LineStyle(overrides=(limits("slowdown"),))
    return time_series(text, queries, Axis("celsius"), style, width=_THIRD, height=_LOW)


def _memory_temperature() -> Placed:
    text = PanelText("Memory temperature", "Temperature of the device memory; HBM throttles on its own limit.")
    return time_series(text, [Query(each(device.MEMORY_TEMP), GPU)], Axis("celsius"))


def _power() -> Placed:
    text = PanelText(
        "Power draw",
        "Power drawn, and the lowest limit in force on each model. Running at the limit is normal under load.",
    )
    limit = Query(f"min by (modelName) ({promql.series(device.POWER_LIMIT)})", "{{modelName}} limit")
    queries = [Query(each(device.POWER_USAGE), GPU), limit]
    style = LineStyle(overrides=(limits("limit"),))
    return time_series(text, queries, Axis("watt", low=0), style, width=_THIRD, height=_LOW)


def _clocks() -> Placed:
    text = PanelText("SM clock", "Clock of the multiprocessors; a GPU that is below its peers runs slower than they.")
    return time_series(
        text, [Query(f"{each(device.SM_CLOCK)} * 1e6", GPU)], Axis("hertz", low=0), width=_THIRD, height=_LOW
    )


def _memory() -> Placed:
    text = PanelText(
        "GPU memory used",
        "Share of usable frame buffer memory in use. Frameworks that allocate all memory at start show a constant high "
        "value.",
        runbooks=("KernelcastGpuMemoryNearlyFull",),
    )
    used, free = each(device.FB_USED), each(device.FB_FREE)
    query = Query(f"{used} / ({used} + {free})", INSTANCE)
    return time_series(text, [query], Axis("percentunit", low=0, high=1), width=_THIRD, height=_LOW)


def _limited() -> Placed:
    text = PanelText(
        "Time lost to limits",
        "Share of time in which a limit reduced the clocks. The power limit is normal under load; heat and reliability "
        "are not.",
        runbooks=("KernelcastGpuThrottling",),
    )
    causes = (
        (device.POWER_VIOLATION, "power"),
        (device.THERMAL_VIOLATION, "heat"),
        (device.RELIABILITY_VIOLATION, "reliability"),
        (device.BOARD_LIMIT_VIOLATION, "board"),
        (device.SYNC_BOOST_VIOLATION, "sync boost"),
        (device.LOW_UTIL_VIOLATION, "low utilisation"),
    )
    queries = [Query(f"clamp_max({each_rate(row)} / {_NANO}, 1)", f"{GPU} {word}") for row, word in causes]
    queries.append(liveness.absent(row for row, _ in causes))
    return time_series(text, queries, Axis("percentunit", low=0), width=24)


def held_back_expr(by: str) -> str:
    """Bits of the reasons for which clocks are held back, in the order of `_THROTTLING`.

    Args:
        by: Labels of the result.
    """
    mask = f"max by ({by}) ({promql.series(device.CLOCK_EVENT_REASONS)})"
    return " + ".join(f"{2**place} * (floor({mask} / {bit}) % 2)" for place, (bit, _) in enumerate(_THROTTLING))


def held_back(by: str, free: Collection[str] = ()) -> str:
    """Whether any of these reasons holds: bit 0x8, or one of 0x20, 0x40 and 0x80.

    Args:
        by: Labels of the result.
        free: Labels that the variables must not narrow.
    """
    mask = f"max by ({by}) ({promql.series(device.CLOCK_EVENT_REASONS, free=free)})"
    return f"floor({mask} / 8) % 2 + floor({mask} / 32) % 8 > 0"


def throttling(*, height: int = 5) -> Placed:
    """Reasons for reduced clocks over time."""
    text = PanelText(
        "Reduced clocks",
        "When a GPU lowered its clocks because of heat, a hardware slowdown or a power brake.",
        runbooks=("KernelcastGpuThrottling",),
    )
    by = "Hostname, gpu, GPU_I_ID, GPU_I_PROFILE"
    return state_timeline(text, [Query(held_back_expr(by), GPU)], held_back_states(), height=height)


def held_back_in_short() -> dict[str, tuple[str, str]]:
    """The same states in words that fit a column; "hardware" is left out where heat or the power brake explains it."""
    states = {}
    for combination, (reasons, color) in held_back_states().items():
        causes = [word for word, reason in (("heat", "thermal"), ("power brake", "power brake")) if reason in reasons]
        explained = "hardware thermal" in reasons or "power brake" in reasons
        if "hardware slowdown" in reasons and not explained:
            causes.append("hardware")
        states[combination] = (" + ".join(causes) or reasons, color)
    return states


def held_back_states() -> dict[str, tuple[str, str]]:
    """Every combination of reasons as one state, so that a GPU takes one line."""
    states = {"0": ("free", "green")}
    for combination in range(1, 2 ** len(_THROTTLING)):
        reasons = [reason for place, (_, reason) in enumerate(_THROTTLING) if combination >> place & 1]
        states[str(combination)] = (" + ".join(reasons), "orange" if reasons == [_MILD] else "red")
    return states
