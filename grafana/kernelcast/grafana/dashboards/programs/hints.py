"""Tuning hints: tunables, proposals, outcomes and measured gains."""

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import living
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, Calm, Column, LineStyle, PanelText, Placed, table, time_series
from kernelcast.grafana.model.targets import Query, column
from kernelcast.wire.catalogue import forecast, kernel


def row() -> Row:
    """Tunables, hints, outcomes and the measured gain."""
    return Row("Tuning hints", (_tunables(), _issued(), _outcomes(), _gain()))


def _tunables() -> Placed:
    text = PanelText(
        "Tunables",
        "Parameters that running programs have registered, their present and allowed values, and the last measured "
        "effect: kernel time after the hint divided by the time before; below 100 % is faster.",
    )
    labels = "Hostname, gpu, program, rank, tunable"
    tunables = promql.series(kernel.TUNABLE_INFO, free=("kernel",))
    ratio = f"min by ({labels}) ({promql.series(kernel.HINT_MEASURED)})"
    return table(
        text,
        [column(f"group by ({labels}, kernel, value, allowed, scope, granularity) ({tunables})"), column(ratio)],
        (
            Column("Hostname", "Node", width=160),
            Column("gpu", "GPU", width=60),
            Column("program", "Program", width=160),
            Column("rank", "Rank", width=70),
            Column("tunable", "Tunable"),
            Column("value", "Value", width=100),
            Column("allowed", "Allowed"),
            Column("kernel", "Kernel"),
            Column("scope", "Scope", width=90),
            Column("granularity", "Changes at", width=110),
            Column("Value #B", "Time after / before", "percentunit", width=160),
        ),
        sort="Program",
        height=7,
    )


def _issued() -> Placed:
    text = PanelText(
        "Hints issued",
        "Hints that the predictor wrote, by the rule that gave them.",
        calm=Calm("No hint in this time range", living.PREDICTORS),
    )
    issued = promql.happened(promql.series(forecast.HINTS_ISSUED))
    query = Query(f"sum by (program, tunable, rule) ({issued})", "{{program}} {{tunable}}: {{rule}}")
    return time_series(text, [query], Axis("short", low=0, decimals=0), LineStyle(bars=True), width=8)


def _outcomes() -> Placed:
    text = PanelText(
        "Outcomes of hints",
        "Hints that reached a program, by outcome. A rejection names an error of the predictor. A rollback protects "
        "the program from a worse value.",
        calm=Calm("No hint reached a program in this time range", living.PROGRAMS),
    )
    outcomes = promql.happened(promql.series(kernel.HINT_OUTCOMES))
    query = Query(f"sum by (state) ({outcomes})", "{{state}}")
    return time_series(text, [query], Axis("short", low=0, decimals=0), LineStyle(bars=True, stacked=True), width=8)


def _gain() -> Placed:
    text = PanelText(
        "Measured effect",
        "Kernel time after a hint over kernel time before, as programs measured it; below the dashed line is faster.",
    )
    query = Query(promql.ranked(promql.series(kernel.HINT_MEASURED)), "{{program}} {{rank}} {{tunable}}")
    unchanged = ((None, "transparent"), (1, "text"))
    return time_series(text, [query], Axis("percentunit", low=0, thresholds=unchanged, soft_high=1.1), width=8)
