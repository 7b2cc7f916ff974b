"""The GPUs themselves, under DCGM's names."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, Look, Placed, Text, limits, state_timeline, time_series
from kernelcast.grafana.model.targets import Query
from kernelcast.wire.catalogue import device

_GPU: Final = "{{Hostname}} GPU {{gpu}}"
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


def glance() -> Row:
    """What the overview shows of them."""
    return Row("GPUs", (_utilisation(), _memory(), _throttling()))


def rows() -> tuple[Row, ...]:
    """Utilisation, heat, power, memory, and who holds the clocks back."""
    return (Row("GPUs", (_utilisation(), _memory(), _temperature(), _power(), _throttling())),)


def _utilisation() -> Placed:
    text = Text(
        "GPU utilisation",
        "Share of time in which at least one kernel ran. It says nothing about how well: see device time and kernels "
        "below.",
    )
    return time_series(text, [Query(promql.series(device.GPU_UTIL), _GPU)], Axis("percent", low=0, high=100))


def _temperature() -> Placed:
    text = Text("GPU temperature", "Core temperature, and the temperature at which the driver slows the GPU down.")
    limit = Query(f"min by (modelName) ({promql.series(device.SLOWDOWN_TEMP)})", "{{modelName}} slowdown")
    queries = [Query(promql.series(device.GPU_TEMP), _GPU), limit]
    return time_series(text, queries, Axis("celsius"), Look(overrides=(limits("slowdown"),)))


def _power() -> Placed:
    text = Text(
        "Power draw",
        "Power drawn, and the lowest limit in force on each model. Running at the limit is normal under load.",
    )
    limit = Query(f"min by (modelName) ({promql.series(device.POWER_LIMIT)})", "{{modelName}} limit")
    queries = [Query(promql.series(device.POWER_USAGE), _GPU), limit]
    return time_series(text, queries, Axis("watt", low=0), Look(overrides=(limits("limit"),)))


def _memory() -> Placed:
    text = Text(
        "GPU memory used",
        "Share of usable frame buffer memory in use. Frameworks that allocate all of it at start sit high and flat.",
    )
    used, free = promql.series(device.FB_USED), promql.series(device.FB_FREE)
    return time_series(text, [Query(f"{used} / ({used} + {free})", _GPU)], Axis("percentunit", low=0, high=1))


def _throttling() -> Placed:
    text = Text(
        "Clocks held back", "When a GPU lowered its clocks because of heat, a hardware slowdown or a power brake."
    )
    mask = promql.series(device.CLOCK_EVENT_REASONS)
    weighed = (f"{2**place} * (floor({mask} / {bit}) % 2)" for place, (bit, _) in enumerate(_THROTTLING))
    return state_timeline(text, [Query(" + ".join(weighed), _GPU)], _held_back())


def _held_back() -> dict[str, tuple[str, str]]:
    """Every combination of reasons as one state, so that a GPU takes one line."""
    states = {"0": ("free", "green")}
    for combination in range(1, 2 ** len(_THROTTLING)):
        reasons = [reason for place, (_, reason) in enumerate(_THROTTLING) if combination >> place & 1]
        states[str(combination)] = (" + ".join(reasons), "orange" if reasons == [_MILD] else "red")
    return states
