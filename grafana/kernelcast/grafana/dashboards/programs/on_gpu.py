"""A row of panels on the page `gpu`: the kernels that run on one GPU, whatever their program."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.dashboards.programs import busy
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, EmptyText, PanelText, time_series
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import Query, column
from kernelcast.wire.catalogue import kernel

_FREE: Final = ("program", "rank")
_ROWS: Final = 10
"""Rows of the table."""


def row() -> Row:
    """The hottest kernels, and the GPU's time by activity."""
    ranked = PanelText(
        "Kernels on these GPUs",
        f"The {_ROWS} kernels with the most GPU time now, with their program; a click leads to the kernel. "
        "Needs the recording rules.",
        EmptyText("no program reports", f"{liveness.GPUS} and on () {liveness.RULES}"),
    )
    hottest = f"topk({_ROWS}, sum by (program, kernel) ({busy.on_gpus()}))"
    columns = (
        Column("program", "Program", width=160),
        Column("kernel", "Kernel"),
        Column("Value", "GPU time/s", "percentunit", bar=True, width=160),
    )
    kernels = table(ranked, [column(hottest)], columns, sort="GPU time/s", width=12, height=8)
    text = PanelText("Time of these GPUs by activity", "Wall time of the GPUs that programs with the probe report.")
    spent = promql.seen_rate(kernel.DEVICE_TIME, free=_FREE)
    activity = Query(f"sum by (state) ({spent}) / scalar(sum({spent}))", "{{state}}")
    return Row(
        "Kernels of these GPUs", (kernels, time_series(text, [activity], Axis("percentunit", low=0))), collapsed=True
    )
