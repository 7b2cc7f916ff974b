"""Kernels: which take the time, how long they last, and which got slower."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards.programs.busy import NOW, WHOLE_RANGE, busy_seconds
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import (
    Axis,
    Column,
    LineStyle,
    PanelText,
    Placed,
    grey,
    heatmap,
    table,
    time_series,
)
from kernelcast.grafana.model.targets import Query, column
from kernelcast.wire.catalogue import kernel

_TABLE_ROWS: Final = 25
_LINES: Final = 10
_BY: Final = "program, kernel"
_BEYOND_THE_CAP: Final = "other"


def row() -> Row:
    """From the ranking to one kernel's distribution."""
    over_time = (_share(), _durations(), _tail(), _regression(), _launches(), _waiting(), _graphs())
    return Row("Kernels", (_ranking(), *over_time, _configurations()))


def _of_hottest(expr: str, count: int, *, over: str = WHOLE_RANGE) -> str:
    return f"({expr}) and on ({_BY}) topk({count}, sum by ({_BY}) ({busy_seconds(over=over)}))"


def _mean(at: str = "") -> str:
    def total(suffix: str) -> str:
        selector = promql.series(kernel.DURATION, suffix)
        return f"sum by ({_BY}) (rate({selector}[$__rate_interval]{at}))"

    return f"{total('_sum')} / ({total('_count')} > 0)"


def _quantile(quantile: float) -> str:
    buckets = promql.rate(promql.series(kernel.DURATION, "_bucket"))
    return f"histogram_quantile({quantile}, sum by ({_BY}, le) ({buckets}))"


def _queue_delay() -> str:
    waited = f"sum by ({_BY}) ({promql.rate(promql.series(kernel.QUEUE_DELAY))})"
    known = f"sum by ({_BY}) ({promql.rate(promql.series(kernel.QUEUE_DELAYS))})"
    return f"{waited} / ({known} > 0)"


def _ranking() -> Placed:
    text = PanelText(
        f"Hottest kernels ({_TABLE_ROWS})",
        "Kernels with the most GPU time now. Share is of the GPU time of all kernels of the programs chosen; p50 and "
        "p99 exist for the kernels whose buckets are kept. A collective's duration is its wait for peers, not its "
        "speed. Queued is the mean time from the launching call to the start on the GPU; occupancy is the maximum for "
        "the launch configuration.",
    )
    every = busy_seconds(free=("kernel",))
    share = f"topk({_TABLE_ROWS}, {promql.share(busy_seconds(), of=every, by=f'{_BY}, kernel_class')})"
    launches = f"sum by ({_BY}) ({promql.rate(promql.series(kernel.LAUNCHES))})"
    occupancy = f"max by ({_BY}) ({promql.series(kernel.OCCUPANCY)})"
    per_kernel = (launches, _mean(), _quantile(0.5), _quantile(0.99), _queue_delay(), occupancy)
    return table(
        text,
        [column(share), *(column(_of_hottest(expr, _TABLE_ROWS, over=NOW)) for expr in per_kernel)],
        (
            Column("program", "Program", width=200),
            Column("kernel", "Kernel"),
            Column("kernel_class", "Class", width=110),
            Column("Value #A", "Time share", "percentunit", bar=True, width=260),
            Column("Value #B", "Launches/s", "cps", width=120),
            Column("Value #C", "Mean", "s", width=110),
            Column("Value #D", "p50", "s", width=110),
            Column("Value #E", "p99", "s", width=110),
            Column("Value #F", "Queued", "s", width=110),
            Column("Value #G", "Occupancy", "percentunit", width=110),
        ),
        sort="Time share",
    )


def _share() -> Placed:
    text = PanelText(
        "Share of GPU time",
        f"GPU time by kernel. “{_BEYOND_THE_CAP}” are the kernels beyond the limit per program. The rest up to 100 % "
        f"are named kernels below the {_LINES} hottest of the time range.",
    )
    every = busy_seconds(free=("kernel",))
    not_beyond = (f'kernel!="{_BEYOND_THE_CAP}"',)
    named = promql.share(busy_seconds(extra=not_beyond), of=every, by="kernel")
    hottest = f"topk({_LINES}, sum by (kernel) ({busy_seconds(extra=not_beyond, over=WHOLE_RANGE)}))"
    beyond = busy_seconds(extra=(f'kernel="{_BEYOND_THE_CAP}"',), free=("kernel",))
    queries = [
        Query(f"{named} and on (kernel) {hottest}", "{{kernel}}"),
        Query(promql.share(beyond, of=every, by="kernel"), "{{kernel}} (beyond the cap)"),
    ]
    look = LineStyle(stacked=True, overrides=(grey(f"{_BEYOND_THE_CAP} (beyond the cap)"),))
    return time_series(text, queries, Axis("percentunit", low=0, high=1), look, width=24, height=9)


def _durations() -> Placed:
    text = PanelText(
        "Durations",
        "Distribution of the durations of the chosen kernels, in buckets of powers of two. Choose one kernel: two "
        "bands of one kernel are two configurations, a band that bends upwards is a slowdown.",
    )
    buckets = promql.rate(promql.series(kernel.DURATION, "_bucket"))
    return heatmap(text, Query(f"sum by (le) ({buckets})", "{{le}}", format="heatmap"), "s")


def _tail() -> Placed:
    text = PanelText(
        "p99 duration",
        f"The 99th percentile of the {_LINES} hottest kernels chosen, interpolated within a power of two, on a "
        "logarithmic scale.",
    )
    query = Query(_of_hottest(_quantile(0.99), _LINES), "{{program}} {{kernel}}")
    return time_series(text, [query], Axis("s", logarithmic=True), height=9)


def _regression() -> Placed:
    text = PanelText(
        "Mean duration against a day before",
        "Above 1 the kernel takes longer than at this time yesterday. A change of shapes or of the program does that "
        "too.",
    )
    query = Query(_of_hottest(f"({_mean()}) / ({_mean(' offset 1d')})", _LINES), "{{program}} {{kernel}}")
    as_before = ((None, "transparent"), (1, "text"))
    return time_series(text, [query], Axis("percentunit", low=0, thresholds=as_before, soft_high=1.1))


def _launches() -> Placed:
    text = PanelText(
        "Launch rate",
        f"Launches a second of the {_LINES} hottest kernels chosen. A gap means that the program paused.",
    )
    launches = f"sum by ({_BY}) ({promql.rate(promql.series(kernel.LAUNCHES))})"
    return time_series(text, [Query(_of_hottest(launches, _LINES), "{{program}} {{kernel}}")], Axis("cps", low=0))


def _waiting() -> Placed:
    text = PanelText(
        "Time from launch to start",
        f"Mean time that launches of the {_LINES} hottest kernels waited before the GPU began them. A long time means "
        "that the GPU is busy; a time near 0 means that the program launches too slowly.",
    )
    query = Query(_of_hottest(_queue_delay(), _LINES), "{{program}} {{kernel}}")
    return time_series(text, [query], Axis("s", low=0))


def _graphs() -> Placed:
    text = PanelText(
        "Launches from CUDA graphs",
        "Share of each program's launches that CUDA graphs replayed, at almost no cost for the launching thread.",
    )
    launched = promql.rate(promql.series(kernel.LAUNCHES, free=("kernel",)))
    replayed = promql.rate(promql.series(kernel.GRAPH_LAUNCHES, free=("kernel",)))
    expr = f"sum by (program) ({replayed}) / (sum by (program) ({launched}) > 0)"
    return time_series(text, [Query(expr, "{{program}}")], Axis("percentunit", low=0, high=1))


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
        [column(f"topk({_TABLE_ROWS}, {_of_hottest(seen, _TABLE_ROWS, over=NOW)})")],
        (
            Column("program", "Program", width=200),
            Column("kernel", "Kernel"),
            Column("grid", "Grid", width=140),
            Column("block", "Block", width=120),
            Column("registers", "Registers", width=100),
            Column("shared_memory", "Shared (B)", width=110),
            Column("local_memory", "Local (B)", width=110),
        ),
        sort="Registers",
        height=7,
    )
