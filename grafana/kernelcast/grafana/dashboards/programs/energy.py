"""A row of panels about energy, on the page `kernels`: the GPU's measured energy, divided over kernels by estimate."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, EmptyText, LineStyle, PanelText, Placed, grey, time_series
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import Query, column
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import energy

_LINES: Final = 10
"""Lines of the graph; more cannot be distinguished."""
_ROWS: Final = 15
"""Rows of the table."""
_BY: Final = "program, kernel"


def row() -> Row:
    """By kernel, by state, and a launch's share."""
    return Row("Energy (estimates)", (_kernels(), _states(), _table()), collapsed=True)


def _power() -> str:
    return f"sum by ({_BY}) ({promql.seen_rate(energy.KERNEL_ENERGY)})"


def _kernels() -> Placed:
    text = PanelText(
        "Power by kernel",
        f"Estimated power of the {_LINES} kernels that take most: the GPU's measured energy while it was active, "
        "divided by GPU time. The estimate is too low for a kernel that draws more power than the others.",
    )
    query = Query(f"topk({_LINES}, {_power()})", "{{program}} {{kernel}}")
    return time_series(text, [query], Axis("watt", low=0), LineStyle(stacked=True))


def _states() -> Placed:
    text = PanelText(
        "Power while active and idle",
        "The GPU's measured energy while kernels of reporting programs ran (active) and while none ran (idle). "
        "Time that was not measured is divided as the measured time was.",
    )
    by_state = promql.rate(promql.series(energy.ENERGY, extra=('state!="unmeasured"',)))
    gpu = "Hostname, UUID, gpu, source"
    spent = (
        f"{by_state} * on ({gpu}) group_left () "
        f"(sum by ({gpu}) ({promql.rate(promql.series(energy.ENERGY))}) / (sum by ({gpu}) ({by_state}) > 0))"
    )
    style = LineStyle(stacked=True, overrides=(grey("idle"),))
    return time_series(text, [Query(f"sum by (state) ({spent})", "{{state}}")], Axis("watt", low=0), style)


def _table() -> Placed:
    text = PanelText(
        "Energy by kernel in this time range",
        "Estimated energy of each kernel and of one launch of it: the possible saving by a change of the kernel.",
        EmptyText("no energy is measured", liveness.PROGRAMS),
    )
    whole = f"sum by ({_BY}) ({promql.seen_increase(energy.KERNEL_ENERGY, over='[$__range]')})"
    spent = f"sum by ({_BY}) (increase({promql.series(energy.KERNEL_ENERGY)}[$__range]))"
    launched = f"sum by ({_BY}) (increase({promql.series(kernel.LAUNCHES)}[$__range]))"
    largest = f"topk({_ROWS}, {whole})"
    return table(
        text,
        [column(largest), column(f"{spent} / ({launched} > 0) and on ({_BY}) {largest}")],
        (
            Column("program", "Program", width=200),
            Column("kernel", "Kernel"),
            Column("Value #A", "Energy", "joule", width=140),
            Column("Value #B", "Per launch", "joule", width=140),
        ),
        sort="Energy",
        height=7,
    )
