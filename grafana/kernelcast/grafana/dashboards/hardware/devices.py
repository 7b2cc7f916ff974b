"""Panels of the page `gpu` about the GPU itself, by DCGM's metrics: load, temperature, power, clocks."""

from collections.abc import Collection
from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, LineStyle, PanelText, Placed, limits, state_timeline, time_series
from kernelcast.grafana.model.targets import Query
from kernelcast.wire.catalogue.devices import device, profiling
from kernelcast.wire.catalogue.model import Metric

GPU: Final = "{{Hostname}} GPU {{gpu}}"
INSTANCE: Final = f"{GPU} {{{{GPU_I_PROFILE}}}} {{{{GPU_I_ID}}}}"
"""A MIG instance; of an undivided GPU nothing stands behind its number."""

_MILLI: Final = 1000
"""Millijoules in a joule."""
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


def first_screen() -> tuple[Placed, ...]:
    """Load, temperature, power and clocks."""
    return (_utilisation(), _temperature(), _power(), _clocks())


def rows() -> tuple[Row, ...]:
    """Load in detail, then memory, energy and reasons for reduced clocks."""
    load = (_memory(), _engine(), _tensor(), _interface(), _video(), _memory_temperature())
    return (Row("Load", load, collapsed=True), Row("Clocks and energy", (throttling(), _energy()), collapsed=True))


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
    return time_series(text, [Query(each(device.GPU_UTIL), GPU)], Axis("percent", low=0, high=100), height=6)


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


def _tensor() -> Placed:
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


def _video() -> Placed:
    text = PanelText("Video engines", "Load of the encoders and decoders, which no kernel uses.")
    queries = [
        Query(each(device.ENC_UTIL), f"{GPU} encoder"),
        Query(each(device.DEC_UTIL), f"{GPU} decoder"),
    ]
    return time_series(text, queries, Axis("percent", low=0, high=100))


def _temperature() -> Placed:
    text = PanelText("GPU temperature", "Core temperature, and the temperature at which the driver slows the GPU down.")
    limit = Query(f"min by (modelName) ({promql.series(device.SLOWDOWN_TEMP)})", "{{modelName}} slowdown")
    queries = [Query(each(device.GPU_TEMP), GPU), limit]
    return time_series(text, queries, Axis("celsius"), LineStyle(overrides=(limits("slowdown"),)), height=6)


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
    return time_series(text, queries, Axis("watt", low=0), LineStyle(overrides=(limits("limit"),)), height=6)


def _energy() -> Placed:
    text = PanelText(
        "Mean power, from energy",
        "The energy counter's rate: the mean power between two samples, while the power draw is the value at one "
        "moment.",
    )
    return time_series(
        text, [Query(f"{each_rate(device.TOTAL_ENERGY)} / {_MILLI}", GPU)], Axis("watt", low=0), width=24
    )


def _clocks() -> Placed:
    text = PanelText("Clocks", "Clock of the multiprocessors and of the memory.")
    queries = [
        Query(f"{each(device.SM_CLOCK)} * 1e6", f"{GPU} SM"),
        Query(f"{each(device.MEM_CLOCK)} * 1e6", f"{GPU} memory"),
    ]
    return time_series(text, queries, Axis("hertz", low=0), height=6)


def _memory() -> Placed:
    text = PanelText(
        "GPU memory used",
        "Share of usable frame buffer memory in use. Frameworks that allocate all memory at start show a constant high "
        "value.",
    )
    used, free = each(device.FB_USED), each(device.FB_FREE)
    return time_series(text, [Query(f"{used} / ({used} + {free})", INSTANCE)], Axis("percentunit", low=0, high=1))


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


def throttling(*, height: int = 6) -> Placed:
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
