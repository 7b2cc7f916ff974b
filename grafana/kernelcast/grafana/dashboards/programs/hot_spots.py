"""Panels of the page `program`: the kernels with the most GPU time, their durations, and those that got slower."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards.programs import busy, energy
from kernelcast.grafana.inputs import Thresholds
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, LineStyle, PanelText, Placed, grey, time_series
from kernelcast.grafana.model.tables import Column, first_rows, table
from kernelcast.grafana.model.targets import Query, column

_TABLE_ROWS: Final = 25
"""Rows of the table."""
_LINES: Final = 10
"""Lines of each graph; more cannot be distinguished."""
_BY: Final = "program, kernel"
"""Labels of a kernel in all results."""
_SLOWER: Final = Thresholds().kernel_slower_ratio
"""Duration over the usual one from which it is red."""
_WHOLE_RANGE: Final = "[$__range] @ end()"
"""The whole time range as one window, the same at every step: what it ranks first stays so over the graph."""
_BEYOND_THE_CAP: Final = "other"
"""Label `kernel` of the kernels beyond the exporter's limit per program."""
_LAUNCHES: Final = f"sum by ({_BY}) ({busy.of_chosen_kernels()} / {busy.MEAN})"
"""Launches a second: GPU time over the mean duration of a launch."""


def row() -> Row:
    """The kernels over time, and their energy; the table is `ranking`."""
    return Row(
        "All kernels: time, slowdowns, energy", (_share(), _regression(), energy.table_of_kernels()), collapsed=True
    )


def ranking(*, height: int = 7) -> Placed:
    """The table of the kernels with the most GPU time now, each against its usual duration."""
    text = PanelText(
        f"Hottest kernels ({_TABLE_ROWS})",
        "Kernels with the most GPU time now, from 1 % of their program's. Share is of the GPU time of all kernels of "
        "the programs chosen. A collective's duration is its wait for peers, not its speed. Against usual: above 100 % "
        "the mean is longer than a day before, or than in the first minutes, with the same launch configuration and "
        "versions, red from 120 % on; empty where these have changed. Percentiles are in the row of one kernel. Needs "
        "the recording rules.",
        runbooks=("KernelcastKernelSlower",),
    )
    share = promql.share(busy.of_chosen_kernels(), of=busy.of_programs(), by=f"{_BY}, kernel_class")
    mean = f"sum by ({_BY}) ({busy.of_chosen_kernels()}) / ({_LAUNCHES} > 0)"
    kernels = table(
        text,
        list(map(column, (share, _against_usual(), _LAUNCHES, mean))),
        (
            Column("program", "Program", width=140),
            Column("kernel", "Kernel"),
            Column("Value #A", "Time share", "percentunit", bar=True, width=140),
            Column("Value #B", "Against usual", "percentunit", width=110, decimals=0, alarm=_SLOWER),
            Column("Value #D", "Mean", "s", width=90),
            Column("Value #C", "Launches/s", "short", width=100),
            Column("kernel_class", "Class", width=95),
        ),
        sort="Time share",
        height=height,
    )
    return first_rows(kernels, _TABLE_ROWS)


def _against_usual() -> str:
    """Duration of launches over their usual one, of those kernels that have one."""
    now = busy.of_chosen_kernels()
    as_usual = f"sum by ({_BY}) ({now} / {busy.MEAN} * {busy.USUAL})"
    return f"sum by ({_BY}) ({now} and {busy.USUAL}) / ({as_usual} > 0)"


def _share() -> Placed:
    text = PanelText(
        "Share of GPU time",
        f"GPU time by kernel. “{_BEYOND_THE_CAP}” are the kernels beyond the limit per program. The rest up to 100 % "
        f"are named kernels below the {_LINES} hottest of the time range. Needs the recording rules.",
    )
    named, beyond = busy.of_kernels(f'kernel!="{_BEYOND_THE_CAP}"'), busy.of_kernels(f'kernel="{_BEYOND_THE_CAP}"')
    hottest = f"topk({_LINES}, sum by (kernel) (avg_over_time({named}{_WHOLE_RANGE})))"
    queries = [
        Query(f"{promql.share(named, of=busy.of_programs(), by='kernel')} and on (kernel) {hottest}", "{{kernel}}"),
        Query(promql.share(beyond, of=busy.of_programs(), by="kernel"), "{{kernel}} (beyond the cap)"),
    ]
    style = LineStyle(stacked=True, overrides=(grey(f"{_BEYOND_THE_CAP} (beyond the cap)"),))
    return time_series(text, queries, Axis("percentunit", low=0, high=1), style, width=24, height=9)


def _regression() -> Placed:
    text = PanelText(
        "Mean duration against usual",
        "Above 100 % the kernel takes longer than a day before, or than in its first minutes, with the same launch "
        "configuration and versions. It begins 20 minutes after the kernel, in a demo 20 seconds. Needs the recording "
        "rules.",
    )
    whole = f"avg_over_time({busy.of_chosen_kernels()}{_WHOLE_RANGE})"
    hottest = f"({_against_usual()}) and on ({_BY}) topk({_LINES}, sum by ({_BY}) ({whole}))"
    axis = Axis("percentunit", low=0, soft_high=1.1)
    return time_series(text, [Query(hottest, "{{program}} {{kernel}}")], axis, width=12)
