"""A row of panels about one kernel, on the page `program`: durations, ranks side by side, configurations."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards.programs.hot_spots import mean, of_hottest
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, PanelText, Placed, heatmap, time_series
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import Query, column
from kernelcast.wire.catalogue import kernel

_TABLE_ROWS: Final = 25
"""Rows of the table."""
_LINES: Final = 10
"""Lines of the graph; more cannot be distinguished."""
_BY: Final = "program, kernel"


def row() -> Row:
    """From its distribution to its configurations."""
    panels = (_durations(), _ranks(), _configurations())
    return Row("One kernel: choose it above", panels, collapsed=True)


def _durations() -> Placed:
    text = PanelText(
        "Durations",
        "Distribution of the durations of the chosen kernels, in buckets of powers of two. Choose one kernel: two "
        "bands of one kernel are two configurations, a band that bends upwards is a slowdown.",
    )
    buckets = promql.seen_rate(kernel.DURATION, "_bucket")
    return heatmap(text, Query(f"sum by (le) ({buckets})", "{{le}}", format="heatmap"), "s")


def _ranks() -> Placed:
    text = PanelText(
        "Ranks side by side",
        f"Mean duration of the chosen kernels on each GPU and rank, the {_LINES} slowest. One line far above the "
        "others is a straggler.",
        runbooks=("KernelcastStraggler",),
    )
    query = Query(
        promql.ranked(f"topk({_LINES}, {mean(by='Hostname, gpu, rank')})"), "{{Hostname}} GPU {{gpu}} {{rank}}"
    )
    return time_series(text, [query], Axis("s", low=0), height=9)


def _configurations() -> Placed:
    text = PanelText(
        "Launch configurations",
        "The last launch configuration of each kernel. Registers and memory limit the number of blocks on a "
        "multiprocessor. Local memory holds data that did not fit into registers.",
    )
    fields = "grid, block, registers, shared_memory, local_memory"
    seen = f"group by ({_BY}, {fields}) ({promql.series(kernel.KERNEL_INFO)})"
    return table(
        text,
        [column(f"topk({_TABLE_ROWS}, {of_hottest(seen, _TABLE_ROWS, over=promql.NOW)})")],
        (
            Column("program", "Program", width=200),
            Column("kernel", "Kernel"),
            Column("grid", "Grid", width=140),
            Column("block", "Block", width=120),
            Column("registers", "Registers", width=100),
            Column("shared_memory", "Shared memory", "bytes", width=130),
            Column("local_memory", "Local memory", "bytes", width=130),
        ),
        sort="Registers",
        height=7,
    )
