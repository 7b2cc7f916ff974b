"""Figures at the top of the page `gpu`: the state of one GPU, and its distance from its limits."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.dashboards.hardware import trouble
from kernelcast.grafana.dashboards.hardware.trouble import each
from kernelcast.grafana.model.panels import Axis, EmptyText, PanelText, Placed, stat
from kernelcast.grafana.model.targets import Query
from kernelcast.wire.catalogue.devices import device, gpu

_BY: Final = "on (Hostname, gpu)"
_NEAR: Final = ((None, "green"), (0.85, "orange"), (0.95, "red"))
"""Colours by share of a limit."""


def figures() -> tuple[Placed, ...]:
    """State, temperature, power, memory and errors."""
    return (_state(), _heat(), _power(), _memory(), _errors())


def _state() -> Placed:
    text = PanelText(
        "State",
        "The worst that is known of this GPU now.",
        runbooks=("KernelcastGpuDown", "KernelcastGpuNeedsRecovery"),
    )
    return stat(text, [Query(trouble.state())], Axis("none", states=trouble.STATES), width=4, height=3)


def _heat() -> Placed:
    text = PanelText(
        "Temperature of limit",
        "Temperature, as a share of that at which the driver slows the GPU down.",
        runbooks=("KernelcastGpuThrottling",),
    )
    expr = f"{each(device.GPU_TEMP)} / {_BY} ({each(device.SLOWDOWN_TEMP)} > 0)"
    return stat(text, [Query(expr)], Axis("percentunit", low=0, thresholds=_NEAR), width=4, height=3)


def _power() -> Placed:
    text = PanelText("Power of limit", "Power draw, as a share of the limit in force. Near 100 % is normal under load.")
    expr = f"{each(device.POWER_USAGE)} / {_BY} ({each(device.POWER_LIMIT)} > 0)"
    return stat(text, [Query(expr)], Axis("percentunit", low=0), width=4, height=3)


def _memory() -> Placed:
    text = PanelText(
        "Memory in use",
        "Share of usable memory in use; of a divided GPU, that of its fullest MIG instance.",
        runbooks=("KernelcastGpuMemoryNearlyFull",),
    )
    used, free = promql.series(device.FB_USED), promql.series(device.FB_FREE)
    return stat(
        text,
        [Query(f"max by (Hostname, gpu) ({used} / ({used} + {free}))")],
        Axis("percentunit", low=0, high=1),
        width=4,
        height=3,
    )


def _errors() -> Placed:
    text = PanelText(
        "XID errors",
        "XID errors of the GPU in this time range; many are a program's fault, see the table below.",
        EmptyText("none", liveness.GPUS),
        runbooks=("KernelcastGpuXidHardware", "KernelcastGpuXid"),
    )
    axis = Axis("short", low=0, decimals=0, thresholds=((None, "green"), (1, "red")))
    happened = promql.happened(promql.series(gpu.XID_ERRORS), of="Hostname, UUID, xid", window="$__range")
    return stat(text, [Query(f"sum({happened})")], axis, width=4, height=3)
