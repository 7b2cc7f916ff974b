"""Panels of the page `program`: the kernels with the most GPU time, their durations, and those that got slower."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards.programs import energy
from kernelcast.grafana.dashboards.programs.busy import WHOLE_RANGE, busy_seconds
from kernelcast.grafana.inputs import Thresholds
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, LineStyle, PanelText, Placed, grey, time_series
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import Query, column
from kernelcast.grafana.rules.recording import KERNEL_BASELINE, KERNEL_BUSY, KERNEL_MEAN
from kernelcast.wire.catalogue import kernel

_TABLE_ROWS: Final = 25
"""Rows of the table."""
_LINES: Final = 10
"""Lines of each graph; more cannot be distinguished."""
_BY: Final = "program, kernel"
"""Labels of a kernel in all results."""
_SLOWER: Final = Thresholds().kernel_slower_ratio
"""Duration over the usual one from which it is red."""
_BEYOND_THE_CAP: Final = "other"
"""Label `kernel` of the kernels beyond the exporter's limit per program."""


def row() -> Row:
    """The kernels over time, and their energy; the table is `ranking`."""
    return Row(
        "All kernels: time, slowdowns, energy", (_share(), _regression(), energy.table_of_kernels()), collapsed=True
    )


def of_hottest(expr: str, count: int, *, over: str = WHOLE_RANGE) -> str:
    """Results of an expression for the kernels with the most GPU time only.

    Args:
        expr: PromQL, by program and kernel.
        count: Number of kernels.
        over: Range of time over which the GPU time counts, `promql.NOW` or `WHOLE_RANGE`.
    """
    return f"({expr}) and on ({_BY}) topk({count}, sum by ({_BY}) ({busy_seconds(over=over)}))"


def mean(at: str = "", by: str = _BY) -> str:
    """Mean duration of each kernel.

    Args:
        at: Modifier in PromQL, such as ` offset 1d`; empty for now.
        by: Labels of the result.
    """

    def total(suffix: str) -> str:
        selector = promql.series(kernel.DURATION, suffix)
        return f"sum by ({by}) (rate({selector}[$__rate_interval]{at}))"

    return f"{total('_sum')} / ({total('_count')} > 0)"


def _quantile(quantile: float) -> str:
    buckets = promql.rate(promql.series(kernel.DURATION, "_bucket"))
    return f"histogram_quantile({quantile}, sum by ({_BY}, le) ({buckets}))"


def _queue_delay() -> str:
    waited = f"sum by ({_BY}) ({promql.rate(promql.series(kernel.QUEUE_DELAY))})"
    counted = f"sum by ({_BY}) ({promql.rate(promql.series(kernel.QUEUE_DELAYS))})"
    return f"{waited} / ({counted} > 0)"


def ranking(*, height: int = 7) -> Placed:
    """The table of the kernels with the most GPU time now, each against its usual duration."""
    text = PanelText(
        f"Hottest kernels ({_TABLE_ROWS})",
        "Kernels with the most GPU time now. Share is of the GPU time of all kernels of the programs chosen; p50 and "
        "p99 exist for the kernels whose buckets are kept. A collective's duration is its wait for peers, not its "
        "speed. Queued is the mean time from the launching call to the start on the GPU; occupancy is the maximum for "
        "the launch configuration. Against usual: above 100 % the mean is longer than a day before, or than in the "
        "first minutes, with the same launch configuration and versions, red from 120 % on; empty where these have "
        "changed.",
        runbooks=("KernelcastKernelSlower",),
    )
    every = busy_seconds(free=("kernel",))
    share = f"topk({_TABLE_ROWS}, {promql.share(busy_seconds(), of=every, by=f'{_BY}, kernel_class')})"
    launches = f"sum by ({_BY}) ({promql.seen_rate(kernel.LAUNCHES)})"
    occupancy = f"max by ({_BY}) ({promql.series(kernel.OCCUPANCY)})"
    per_kernel = (_against_before(), launches, mean(), _quantile(0.5), _quantile(0.99), _queue_delay(), occupancy)
    return table(
        text,
        [column(share), *(column(of_hottest(expr, _TABLE_ROWS, over=promql.NOW)) for expr in per_kernel)],
        (
            Column("program", "Program", width=140),
            Column("kernel", "Kernel"),
            Column("Value #A", "Time share", "percentunit", bar=True, width=140),
            Column("Value #B", "Against usual", "percentunit", width=110, decimals=0, alarm=_SLOWER),
            Column("Value #D", "Mean", "s", width=80),
            Column("Value #C", "Launches/s", "short", width=90),
            Column("Value #E", "p50", "s", width=75),
            Column("Value #F", "p99", "s", width=75),
            Column("Value #G", "Queued", "s", width=80),
            Column("Value #H", "Occupancy", "percentunit", width=90, decimals=0),
            Column("kernel_class", "Class", width=85),
        ),
        sort="Time share",
        height=height,
    )


def _against_before() -> str:
    """Duration of launches over their usual one; without the rules, the mean over that of a day before."""
    chosen = 'job=~"$job", Hostname=~"$hostname", gpu=~"$gpu", program=~"$program", rank=~"$rank|", kernel=~"$kernel"'
    busy, took, usual = (f"{row}{{{chosen}}}" for row in (KERNEL_BUSY, KERNEL_MEAN, KERNEL_BASELINE))
    lately = f"avg_over_time({usual}[10m])"  # recorded every five minutes
    recorded = f"sum by ({_BY}) ({busy} and {lately}) / (sum by ({_BY}) ({busy} / {took} * {lately}) > 0)"
    return f"({recorded} or (({mean()}) / ({mean(' offset 1d')}) unless on () {took}))"


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
    style = LineStyle(stacked=True, overrides=(grey(f"{_BEYOND_THE_CAP} (beyond the cap)"),))
    return time_series(text, queries, Axis("percentunit", low=0, high=1), style, width=24, height=9)


def _regression() -> Placed:
    text = PanelText(
        "Mean duration against usual",
        "Above 100 % the kernel takes longer than a day before, or than in its first minutes, with the same launch "
        "configuration and versions. It begins 20 minutes after the kernel, in a demo 20 seconds.",
    )
    query = Query(of_hottest(_against_before(), _LINES), "{{program}} {{kernel}}")
    usual_line = ((None, "transparent"), (1, "text"))
    return time_series(text, [query], Axis("percentunit", low=0, thresholds=usual_line, soft_high=1.1), width=12)
