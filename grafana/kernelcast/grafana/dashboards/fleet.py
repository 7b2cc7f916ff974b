"""Panels about the fleet, for the pages of fleet and node: GPUs by state, alerts, utilisation as quantiles, power."""

from typing import Final

from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.dashboards.frame import ALERT_SUBJECT, OWN_ALERTS
from kernelcast.grafana.dashboards.hardware import accelerators, trouble
from kernelcast.grafana.dashboards.hardware.devices import held_back
from kernelcast.grafana.model.panels import Axis, EmptyText, PanelText, Placed, stat, time_series
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import Query, column
from kernelcast.wire.catalogue.devices import device, gpu

_WATCHDOG: Final = 'ALERTS{alertstate="firing", alertname="Watchdog"}'
_SEVERITIES: Final = {"3": ("critical", "red"), "2": ("warning", "orange"), "1": ("info", "blue")}
"""Rank of each severity, with its word and colour: the table of alerts is sorted by rank."""
_BY: Final = "Hostname, gpu"
"""Labels of one GPU."""


def answering(*, width: int = 4, height: int = 3) -> Placed:
    """How many GPUs answer, and how many do not."""
    text = PanelText(
        "GPUs",
        "GPUs that answer their exporter, and those that do not.",
        runbooks=("KernelcastGpuDown",),
    )
    up = trouble.each(gpu.GPU_UP)
    queries = [Query(f"count({up} > 0)", "answer"), Query(f"count({up} == 0) or 0 * count({up})", "silent")]
    return stat(text, queries, Axis("short", low=0, decimals=0), named=True, width=width, height=height)


def idle(*, width: int = 4, height: int = 3) -> Placed:
    """How many GPUs have an owner and no work."""
    text = PanelText(
        "Idle but allocated",
        "GPUs that a pod or a job has, and on which no kernel ran for 15 minutes.",
        if_empty=EmptyText("none", liveness.row(device.GPU_UTIL)),
        runbooks=("KernelcastGpuIdleAllocated",),
    )
    axis = Axis("short", low=0, decimals=0, thresholds=((None, "text"), (1, "orange")))
    return stat(text, [Query(f"count({trouble.idle_allocated()})")], axis, width=width, height=height)


def power_now(*, width: int = 4, height: int = 3) -> Placed:
    """Power of all GPUs."""
    text = PanelText("Power now", "Sum of the power draw of the GPUs chosen.")
    query = Query(f"sum({trouble.each(device.POWER_USAGE)})")
    return stat(text, [query], Axis("watt", low=0), width=width, height=height)


def alerts(*, width: int = 24, height: int = 7) -> Placed:
    """The alerts that fire, the most severe first."""
    text = PanelText(
        "Alerts that fire",
        "Alerts of kernelcast that fire now, without the word Kernelcast that all their names begin with. The runbook "
        "of each has the first action. Empty: the rules are not "
        "loaded, or Prometheus has stopped evaluating them.",
        if_empty=EmptyText("none fires", _WATCHDOG),
        runbooks=("Watchdog",),
    )
    labels = f"alertname, {ALERT_SUBJECT}"
    firing = f'{OWN_ALERTS}, Hostname=~"$hostname|"'
    ranks = (
        f'{rank} * max by ({labels}) (ALERTS{{alertstate="firing", severity="{word}", {firing}}})'
        for rank, (word, _) in _SEVERITIES.items()
    )
    since = f'max by ({labels}) (ALERTS_FOR_STATE{{{firing}}}) and on ({labels}) ALERTS{{alertstate="firing"}}'
    return table(
        text,
        [column(" or ".join(ranks)), column(f"time() - ({since})")],
        (
            Column("alertname", "Alert", width=145, prefix="Kernelcast"),
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


def utilisation(*, width: int = 8, height: int = 5) -> Placed:
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


def power(*, width: int = 8, height: int = 5) -> Placed:
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
