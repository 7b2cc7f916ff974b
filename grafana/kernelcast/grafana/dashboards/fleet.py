"""Panels of the page `fleet`: GPUs by state, alerts, programs, where the GPU-hours go, utilisation and power."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness, words
from kernelcast.grafana.dashboards.frame import ALERT_SUBJECT, OWN_ALERTS
from kernelcast.grafana.dashboards.hardware import accelerators, trouble
from kernelcast.grafana.dashboards.hardware.devices import held_back
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import (
    Axis,
    EmptyText,
    LineStyle,
    PanelText,
    Placed,
    grey,
    named,
    stat,
    time_series,
)
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import Query, column
from kernelcast.grafana.rules import findings, hours
from kernelcast.grafana.rules.standing import HOLDER, STILL
from kernelcast.wire import verdict
from kernelcast.wire.catalogue import kernel, predictor
from kernelcast.wire.catalogue.devices import device, gpu

_SEVERITIES: Final = {"3": ("critical", "red"), "2": ("warning", "orange"), "1": ("info", "blue")}
"""Rank of each severity, with its word and colour: the table of alerts is sorted by rank."""
_BY: Final = "Hostname, gpu"
"""Labels of one GPU."""
_PROGRAM: Final = ("program", "rank")
"""Labels that the page has no variables for."""
_ROWS: Final = 20
"""Rows of the table of programs."""
_OWNER: Final = "owner"
_CHOSEN: Final = ('hpc_job=~"$hpc_job"', 'user=~"$user"')


def answering(*, width: int = 4, height: int = 3) -> Placed:
    """How many GPUs answer, and how many do not."""
    text = PanelText(
        "GPUs",
        "GPUs that answer their exporter, and those that do not. No data while Kafka does not answer the bridge.",
        runbooks=("KernelcastGpuDown",),
    )
    up = liveness.current(trouble.each(gpu.GPU_UP))
    queries = [
        Query(f"count(({up}) > 0) or 0 * count({up})", "answer"),
        Query(f"count(({up}) == 0) or 0 * count({up})", "silent"),
    ]
    placed = stat(text, queries, Axis("short", low=0, decimals=0), named=True, width=width, height=height)
    placed.panel.field_config["overrides"] = [named("silent", ((None, "text"), (1, "red")))]
    return placed


def idle(*, width: int = 4, height: int = 3) -> Placed:
    """How many GPUs have an owner and no work."""
    text = PanelText(
        "Idle but allocated",
        "GPUs that a pod or a job has, and on which no kernel ran for 15 minutes.",
        if_empty=EmptyText("none", liveness.current(liveness.row(device.GPU_UTIL))),
        runbooks=("KernelcastGpuIdleAllocated",),
    )
    axis = Axis("short", low=0, decimals=0, thresholds=((None, "text"), (1, "orange")))
    return stat(text, [Query(f"count({trouble.idle_allocated()})")], axis, width=width, height=height)


def standing(*, width: int = 4, height: int = 3) -> Placed:
    """How many jobs stand still."""
    text = PanelText(
        "Jobs standing still",
        "Jobs none of whose ranks has made progress for longer than its limit. The page of the program says which rank "
        "holds it up. Needs the recording rules.",
        if_empty=EmptyText("none", liveness.current(liveness.GPUS)),
        runbooks=("KernelcastJobStandsStill", "KernelcastJobStandsStillInOnePhase"),
    )
    axis = Axis("short", low=0, decimals=0, thresholds=((None, "text"), (1, "red")))
    still = f'{STILL}{{job=~"$job", Hostname=~"$hostname", gpu=~"$gpu"}}'
    return stat(text, [Query(f"count(group by (program, job_id) ({still}))")], axis, width=width, height=height)


def alerts(*, width: int = 10, height: int = 6, here: bool = False) -> Placed:
    """The alerts that fire, the most severe first.

    Args:
        width: Columns of the grid.
        height: Rows of the grid.
        here: Whether those about no node are left out, and those about other GPUs than those chosen.
    """
    text = PanelText(
        "Alerts that fire",
        "Alerts of kernelcast that fire now, without the word Kernelcast that all their names begin with. A click on a "
        "name leads to its runbook, whose first line is the first action. Since: as its message says, when a limit was "
        "passed, a finding began or a job last made progress, otherwise when the alert's condition became true. "
        "Empty: the rules are not loaded, or "
        "Prometheus has stopped evaluating them.",
        if_empty=EmptyText("none fires", liveness.RULES),
        runbooks=("Watchdog",),
    )
    labels = f"alertname, {ALERT_SUBJECT}"
    about = 'Hostname=~"$hostname", gpu=~"$gpu|"' if here else 'Hostname=~"$hostname|"'
    firing = f"{OWN_ALERTS}, {about}"
    ranks = (
        f'{rank} * max by ({labels}) (ALERTS{{alertstate="firing", severity="{word}", {firing}}})'
        for rank, (word, _) in _SEVERITIES.items()
    )
    return table(
        text,
        [column(" or ".join(ranks)), column(f"time() - ({_since(labels, firing)})")],
        (
            Column("alertname", "Alert", width=145, prefix="Kernelcast", runbook=True),
            Column("Value #A", "Severity", "none", width=78, words=_SEVERITIES),
            Column("Hostname", "Node", least=84),
            Column("gpu", "GPU", width=50),
            Column("program", "Program", least=84),
            Column("Value #B", "Since", "s", width=66, decimals=0),
        ),
        sort="Severity",
        width=width,
        height=height,
    )


def _since(labels: str, firing: str) -> str:
    """When the fault of each alert began, Unix time: the clock of its message, where that has one of its own.

    Args:
        labels: Labels of a row.
        firing: Matchers of the alerts.
    """
    finding = ", ".join(findings.SUBJECT)
    job, measured = "program, job_id", '{job=~"$job"}'
    clocks = (
        ('cause!=""', finding, promql.series(predictor.FINDING_SINCE)),
        ('alertname="KernelcastJobStandsStill"', f"{job}, Hostname, gpu, rank", f"time() - {HOLDER}{measured}"),
        ('alertname="KernelcastJobStandsStillInOnePhase"', f"{job}, state", f"time() - {STILL}{measured}"),
    )
    own = (
        f'min by ({labels}) (ALERTS{{alertstate="firing", {firing}, {matcher}}} '
        f"* on ({subject}) group_left () min by ({subject}) ({clock}))"
        for matcher, subject, clock in clocks
    )
    alert = f'min by ({labels}) (ALERTS_FOR_STATE{{{firing}}}) and on ({labels}) ALERTS{{alertstate="firing"}}'
    return " or ".join((*own, alert))


def programs(*, width: int = 14, height: int = 6) -> Placed:
    """The programs, those with the most GPUs first."""
    text = PanelText(
        "Programs",
        "Programs with the most GPUs: steps a second of a rank, items a second of all ranks, the share of the peak of "
        "their GPUs that they use at least (in bf16, where they give the operations of a step), the share of a step's "
        f"time that waits for data (red from {verdict.LARGE * 100:g} %), the share of their GPUs' time in which "
        "nothing runs, and for how long the rank that holds up its job stands still. Where steps wait for data: "
        f"{words.LOADER}",
        EmptyText("no program reports", liveness.GPUS),
        runbooks=("KernelcastJobStandsStill",),
    )
    spent = promql.seen_rate(kernel.DEVICE_TIME, free=_PROGRAM)
    nothing = promql.seen_rate(kernel.DEVICE_TIME, extra=('state="idle"',), free=_PROGRAM)
    gpus = f"count by (program) (group by (program, Hostname, UUID) ({liveness.PROGRAMS}))"
    most = f"topk({_ROWS}, {gpus})"
    phases, data = (
        f"sum by (program) ({promql.rate(promql.series(kernel.PHASE_SECONDS, extra=phase, free=_PROGRAM))})"
        for phase in ((), ('phase="data"',))
    )
    speeds = (
        f"{over_ranks} by (program) ({promql.rate(promql.series(row, free=_PROGRAM))})"
        for over_ranks, row in (("avg", kernel.STEPS), ("sum", kernel.ITEMS))
    )
    each = f"max by (program) ({promql.series(kernel.STANDING, free=_PROGRAM)})"
    still = f'max by (program) ({HOLDER}{{job=~"$job"}}) or {each} > 0'
    values = (
        most,
        *speeds,
        f'max by (program) ({hours.UTILIZATION}{{precision="bf16"}})',
        f"{data} / ({phases} > 0)",
        f"(sum by (program) ({nothing}) or 0 * {gpus}) / sum by (program) ({spent})",
        still,
    )
    columns = (
        Column("program", "Program", least=110),
        Column("Value #A", "GPUs", "short", width=56, decimals=0),
        Column("Value #B", "Steps/s", "short", width=70),
        Column("Value #G", "Stands still", "s", width=92, decimals=0),
        Column("Value #C", "Items/s", "short", width=70),
        Column("Value #D", "Of peak", "percentunit", width=70, decimals=0),
        Column("Value #E", "Waits for data", "percentunit", width=106, decimals=0, alarm=verdict.LARGE),
        Column("Value #F", "GPU idle", "percentunit", width=70, decimals=0),
    )
    exprs = (most, *(f"({value}) and on (program) {most}" for value in values[1:]))
    return table(text, list(map(column, exprs)), columns, sort="GPUs", width=width, height=height)


def parts(*, width: int = 10, height: int = 6) -> Placed:
    """What the time of allocated GPUs is spent on."""
    text = PanelText(
        "Where the GPUs' time goes",
        "Allocated GPUs by what their time is spent on; GPUs are GPU-hours an hour. Computing: work of the program. "
        "Data: it waits for its loader. Peers: it waits for other ranks. Still: its job stands still. Unknown: nothing "
        "says, and it is not counted as idle. Needs the recording rules.",
        runbooks=("KernelcastGpuIdleAllocated",),
    )
    parts = _owned(hours.HOURS)
    seen = f"sum by (part) (max_over_time({parts}[$__range] @ end())) > 0"
    query = Query(f"sum by (part) ({parts}) and on (part) ({seen})", "{{part}}")
    style = LineStyle(stacked=True, overrides=(grey(hours.UNKNOWN),))
    none = liveness.nothing("no GPU is allocated", (query.expr,))
    return time_series(text, [query, none], Axis("short", low=0, decimals=1), style, width=width, height=height)


def owners() -> Row:
    """Who has the GPUs, what they do with them, and what that costs."""
    text = PanelText(
        "Owners of GPUs now",
        "Namespace, team, job and user of allocated GPUs; what their time is spent on; power; and the cost of an hour, "
        "where the site or OpenCost gives a price. Needs the recording rules.",
        EmptyText("no GPU is allocated", liveness.GPUS),
    )
    gpus = _by_owner(_owned(hours.HOURS))
    spent = (
        f"{_by_owner(_owned(hours.HOURS, parts))} / {gpus}"
        for parts in (
            (hours.COMPUTING,),
            (hours.DATA, hours.PEERS),
            (hours.STILL, hours.IDLE),
            (hours.UNKNOWN,),
        )
    )
    columns = (
        Column(_OWNER, "Owner"),
        Column("Value #A", "GPUs", "short", width=70),
        Column("Value #B", "Computing", "percentunit", width=90, decimals=0),
        Column("Value #C", "Waiting", "percentunit", width=80, decimals=0),
        Column("Value #D", "Idle or still", "percentunit", width=100, decimals=0),
        Column("Value #E", "Unknown", "percentunit", width=80, decimals=0),
        Column("Value #F", "Power", "watt", width=80),
        Column("Value #G", "Cost an hour", "short", width=100, decimals=2),
    )
    values = (gpus, *spent, _by_owner(_owned(hours.WATTS)), _by_owner(_owned(hours.COST)))
    owned = table(text, list(map(column, values)), columns, sort="GPUs", height=7)
    return Row("GPU-hours, energy and cost by owner", (owned,), collapsed=True)


def _owned(recording: str, parts: tuple[str, ...] = ()) -> str:
    narrowed = (f'part=~"{"|".join(parts)}"',) if parts else ()
    return f"{recording}{{{', '.join((*_CHOSEN, *narrowed))}}}"


def _by_owner(expr: str) -> str:
    """Sums by namespace, team, job and user as one text, of which each owner has some."""
    joined = f'label_join({expr}, "{_OWNER}", " ", "namespace", "{hours.TEAM}", "hpc_job", "user")'
    return f'sum by ({_OWNER}) (label_replace({joined}, "{_OWNER}", "not known", "{_OWNER}", " *"))'


def over_time() -> Row:
    """The fleet over time."""
    return Row("Utilisation, power and states", (_utilisation(), _power(), states()), collapsed=True)


def _utilisation(*, width: int = 8, height: int = 5) -> Placed:
    """Utilisation of GPUs and TPUs as quantiles."""
    text = PanelText(
        "Utilisation",
        "Share of time in which accelerators were at work: of the busiest tenth, the median, and the idlest tenth.",
    )
    busy = accelerators.busy()
    queries = [
        Query(f"quantile by (accelerator) ({share}, {busy})", f"{{{{accelerator}}}} {words}")
        for share, words in ((0.9, "p90"), (0.5, "median"), (0.1, "p10"))
    ]
    return time_series(text, queries, Axis("percentunit", low=0, high=1), width=width, height=height)


def _power(*, width: int = 8, height: int = 5) -> Placed:
    """Power over time, and the limit of all GPUs together."""
    text = PanelText("Power", "Power draw of the GPUs chosen, and the sum of their limits.")
    queries = [
        Query(f"sum({trouble.each(device.POWER_USAGE)})", "drawn"),
        Query(f"sum({trouble.each(device.POWER_LIMIT)})", "sum of limits"),
    ]
    return time_series(text, queries, Axis("watt", low=0), width=width, height=height)


def states(*, width: int = 8, height: int = 5) -> Placed:
    """How many GPUs are in which state, over time."""
    text = PanelText(
        "GPUs by state",
        "Number of GPUs at work, idle, with clocks held back, and without an answer. Each GPU is in one of them: with "
        "clocks held back, whether at work or idle; without an answer, whatever its last values were.",
    )
    busy, silent = trouble.each(device.GPU_UTIL), f"{trouble.each(gpu.GPU_UP)} == 0"
    known = f"unless on ({_BY}) ({silent})"
    free = f"unless on ({_BY}) ({held_back(_BY)}) {known}"
    queries = [
        Query(f"count({busy} >= 1 {free}) or 0 * count({busy})", "at work"),
        Query(f"count({busy} < 1 {free}) or 0 * count({busy})", "idle"),
        Query(f"count(({held_back(_BY)}) {known}) or 0 * count({busy})", "clocks held back"),
        Query(f"count({silent}) or 0 * count({busy})", "do not answer"),
    ]
    return time_series(text, queries, Axis("short", low=0, decimals=0), width=width, height=height)
