"""A row of panels about one kernel, on the page `program`: durations, ranks side by side, configurations."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, PanelText, Placed, heatmap, time_series
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import Query, column
from kernelcast.wire.catalogue import kernel

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
    took, timed = (
        f"sum by (Hostname, gpu, rank) ({promql.rate(promql.series(kernel.DURATION, suffix))})"
        for suffix in ("_sum", "_count")
    )
    slowest = f"topk({_LINES}, {took} / ({timed} > 0))"
    query = Query(promql.ranked(slowest), "{{rank}} {{Hostname}} GPU {{gpu}}")
    return time_series(text, [query], Axis("s", low=0), height=9)


def _configurations() -> Placed:
    text = PanelText(
        "Launch configurations",
        "The last launch configuration of each kernel chosen, and its durations; p50 and p99 exist for the kernels "
        "whose buckets are kept. Registers and memory limit the number of blocks on a multiprocessor, occupancy is "
        "what they allow. Local memory holds data that did not fit into registers. Queued is the mean time from the "
        "launching call to the start on the GPU.",
    )
    fields = "grid, block, registers, shared_memory, local_memory"
    seen = f"group by ({_BY}, {fields}) ({promql.series(kernel.KERNEL_INFO)})"
    buckets = f"sum by ({_BY}, le) ({promql.rate(promql.series(kernel.DURATION, '_bucket'))})"
    waited, counted = (
        f"sum by ({_BY}) ({promql.rate(promql.series(row))})" for row in (kernel.QUEUE_DELAY, kernel.QUEUE_DELAYS)
    )
    values = (
        *(f"histogram_quantile({quantile}, {buckets})" for quantile in (0.5, 0.99)),
        f"{waited} / ({counted} > 0)",
        f"max by ({_BY}) ({promql.series(kernel.OCCUPANCY)})",
    )
    return table(
        text,
        list(map(column, (seen, *values))),
        (
            Column("program", "Program", width=110),
            Column("kernel", "Kernel"),
            Column("Value #B", "p50", "s", width=75),
            Column("Value #C", "p99", "s", width=75),
            Column("Value #D", "Queued", "s", width=75),
            Column("Value #E", "Occupancy", "percentunit", width=85, decimals=0),
            Column("grid", "Grid", width=100),
            Column("block", "Block", width=90),
            Column("registers", "Registers", width=75),
            Column("shared_memory", "Shared memory", "bytes", width=105),
            Column("local_memory", "Local memory", "bytes", width=100),
        ),
        sort="p99",
        height=7,
    )
