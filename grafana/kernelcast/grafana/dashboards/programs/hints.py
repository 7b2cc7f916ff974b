"""A row of panels on the page `program`: hints that are open or kept, their measured gain, consent, tunables."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, EmptyText, LineStyle, PanelText, Placed, time_series
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import Query, column
from kernelcast.wire.catalogue import forecast, kernel

_BY: Final = "program, tunable"
_LINES: Final = 10
"""Lines of the graph; more cannot be distinguished."""


def open_since(labels: str = f"{_BY}, value, rule") -> str:
    """Seconds since the open hints were issued, by some labels."""
    return f"time() - min by ({labels}) ({promql.series(forecast.HINT_OPEN)})"


def row() -> Row:
    """Open hints, kept hints, those that wait for a person; the gain and the events over time; tunables."""
    panels = (_open(), _kept(), _pending(), _budget(), _gain(), _events(), _tunables())
    return Row("Hints: what to change, and did it help", panels, collapsed=True)


def _kept_series() -> str:
    """Series of processes that have kept a hint, whenever that was: the first hint that is kept creates its series."""
    return promql.series(kernel.HINT_OUTCOMES, extra=('state="kept"',))


def _open() -> Placed:
    text = PanelText(
        "Open hints, and the gain expected",
        "Hints that no program has kept or refused yet: the present value and the one proposed, the kernel time "
        "expected over the time now (empty while the gain is unknown), and the state: issued, trial (a program tries "
        "it) or approval (it waits for a person). `kernelcast hints explain ID` shows the reasons.",
        EmptyText("no hint is open", liveness.PREDICTORS),
    )
    labels = f"{_BY}, previous, value, rule, state, hint_id"
    since = open_since(labels)
    promised = promql.series(forecast.HINT_EXPECTED, extra=('bound="mean"',))
    expected = f"min by (hint_id) ({promised})"
    return table(
        text,
        [column(since), column(f"{since} * 0 + on (hint_id) group_left () {expected}")],
        (
            Column("program", "Program", width=110),
            Column("tunable", "Tunable", width=110),
            Column("previous", "Now", width=50),
            Column("value", "Proposed", width=70),
            Column("Value #B", "Time after / before", "percentunit", width=136),
            Column("rule", "Rule", width=75),
            Column("state", "State", width=65),
            Column("Value #A", "Since", "s", width=60, decimals=0),
        ),
        sort="Since",
        width=13,
        height=6,
    )


def _kept() -> Placed:
    text = PanelText(
        "Hints kept, and their measured gain",
        "Tunables whose hint a program has kept, the value now, and the effect that the program measured: kernel time "
        "after over kernel time before.",
        EmptyText("no hint was kept", liveness.PROGRAMS),
    )
    kept = f"count by ({_BY}) ({_kept_series()})"
    tunables = promql.series(kernel.TUNABLE_INFO, free=("kernel",))
    effect = f"min by ({_BY}) ({promql.series(kernel.HINT_MEASURED)})"
    return table(
        text,
        [
            column(kept),
            column(f"group by ({_BY}, value) ({tunables}) and on ({_BY}) ({kept})"),
            column(f"{effect} and on ({_BY}) ({kept})"),
        ],
        (
            Column("program", "Program", width=100),
            Column("tunable", "Tunable"),
            Column("value", "Present value", width=98),
            Column("Value #A", "Processes", "short", width=71, decimals=0),
            Column("Value #C", "Time after / before", "percentunit", width=146),
        ),
        sort="Time after / before",
        width=11,
        height=6,
    )


def _gain() -> Placed:
    text = PanelText(
        "Measured effect",
        f"Kernel time after a hint over kernel time before, as programs measured it, of the {_LINES} tunables with the "
        "largest; below 100 % is faster.",
    )
    effect = f"topk({_LINES}, {promql.series(kernel.HINT_MEASURED)})"
    query = Query(promql.ranked(effect), "{{program}} {{rank}} {{tunable}}")
    return time_series(text, [query], Axis("percentunit", low=0, soft_high=1.1), height=6)


def _events() -> Placed:
    text = PanelText(
        "Hints issued, and their outcomes",
        "One mark for each hint that the predictor wrote, and for each outcome in a program.",
        if_empty=EmptyText("None in this time range", liveness.PREDICTORS),
    )
    issued = promql.marked(promql.series(forecast.HINTS_ISSUED))
    outcomes = promql.marked(promql.series(kernel.HINT_OUTCOMES))
    queries = [
        Query(f"sum by ({_BY}) ({issued})", "{{program}} {{tunable}} issued"),
        Query(f"sum by ({_BY}, state) ({outcomes})", "{{program}} {{tunable}} {{state}}"),
    ]
    return time_series(text, queries, Axis("short", low=0, decimals=0), LineStyle(bars=True), height=6)


def _pending() -> Placed:
    text = PanelText(
        "Hints that wait for a person",
        "Hints that change the results of a program: no program gets one before a person approves it, by "
        "`kernelcast hints approve ID`. `kernelcast hints explain ID` shows the reasons.",
        EmptyText("no hint waits for a person", liveness.PREDICTORS),
        runbooks=("KernelcastHintWaitsForApproval",),
    )
    pending = promql.series(forecast.APPROVAL_PENDING)
    labels = "program, tunable, device_model, value, rule, hint_id"
    return table(
        text,
        [column(f"time() - min by ({labels}) ({pending})")],
        (
            Column("program", "Program", width=95),
            Column("tunable", "Tunable", width=95),
            Column("value", "Proposed", width=66),
            Column("device_model", "GPU model", width=90),
            Column("rule", "Rule", width=70),
            Column("hint_id", "ID", width=120),
            Column("Value", "Waits", "s", width=75),
        ),
        sort="Waits",
        width=12,
        height=6,
    )


def _budget() -> Placed:
    text = PanelText(
        "Budget for trials",
        "Time that trials have cost programs beyond the kept values in this time range, and the time that they were "
        "granted in it: 1 % of the running time by default. No trial begins while a program has spent its budget.",
        if_empty=EmptyText("No program has tried a value in this time range", liveness.PROGRAMS),
    )
    by = "Hostname, gpu, program, rank"
    spent, granted = (
        f"sum by ({by}) (increase({promql.series(total)}[$__range]))"
        for total in (kernel.TRIAL_LOST, kernel.TRIAL_ALLOWED)
    )
    return table(
        text,
        [column(spent), column(granted)],
        (
            Column("program", "Program", least=90),
            Column("rank", "Rank", width=55),
            Column("Value #A", "Spent", "s", width=80),
            Column("Value #B", "Granted", "s", width=80),
            Column("Hostname", "Node", width=110),
            Column("gpu", "GPU", width=50),
        ),
        sort="Spent",
        width=12,
        height=6,
    )


def _tunables() -> Placed:
    text = PanelText(
        "Tunables",
        "Parameters that running programs have registered, their present and allowed values, and the last measured "
        "effect: kernel time after the hint divided by the time before; below 100 % is faster.",
        if_empty=EmptyText("No program has registered a tunable", liveness.PROGRAMS),
    )
    labels = "Hostname, gpu, program, rank, tunable"
    tunables = promql.series(kernel.TUNABLE_INFO, free=("kernel",))
    ratio = f"min by ({labels}) ({promql.series(kernel.HINT_MEASURED)})"
    return table(
        text,
        [column(f"group by ({labels}, kernel, value, allowed, scope, granularity) ({tunables})"), column(ratio)],
        (
            Column("program", "Program", width=130),
            Column("tunable", "Tunable"),
            Column("value", "Value", width=80),
            Column("Value #B", "Time after / before", "percentunit", width=136, decimals=0),
            Column("allowed", "Allowed"),
            Column("kernel", "Kernel"),
            Column("rank", "Rank", width=55),
            Column("Hostname", "Node", width=110),
            Column("gpu", "GPU", width=50),
            Column("scope", "Scope", width=90),
            Column("granularity", "Changes at", width=100),
        ),
        sort="Program",
        height=7,
    )
