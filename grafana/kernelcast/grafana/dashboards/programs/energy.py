"""A table on the page `program`: the GPU's measured energy, divided over kernels by estimate."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.model.panels import EmptyText, PanelText, Placed
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import column
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import energy

_ROWS: Final = 15
"""Rows of the table."""
_BY: Final = "program, kernel"


def table_of_kernels() -> Placed:
    """The kernels that take most energy."""
    text = PanelText(
        "Energy by kernel in this time range",
        "Estimated energy of each kernel and of one launch of it: the measured energy of the GPU while it was active, "
        "divided by GPU time. Too low for a kernel that draws more power than the others.",
        EmptyText("no energy was measured in this time range", liveness.PROGRAMS),
    )
    whole = f"sum by ({_BY}) ({promql.seen_increase(energy.KERNEL_ENERGY, over='[$__range]')})"
    spent = f"sum by ({_BY}) (increase({promql.series(energy.KERNEL_ENERGY)}[$__range]))"
    launched = f"sum by ({_BY}) (increase({promql.series(kernel.LAUNCHES)}[$__range]))"
    largest = f"topk({_ROWS}, {whole})"
    return table(
        text,
        [column(largest), column(f"{spent} / ({launched} > 0) and on ({_BY}) {largest}")],
        (
            Column("program", "Program", width=110),
            Column("kernel", "Kernel"),
            Column("Value #A", "Energy", "joule", width=90),
            Column("Value #B", "Per launch", "joule", width=90),
        ),
        sort="Energy",
        width=12,
        height=8,
    )
