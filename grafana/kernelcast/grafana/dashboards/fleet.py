"""The fleet: hottest kernel, next breach, hints, and counts."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import living
from kernelcast.grafana.dashboards.frame import ALERT_NAMES
from kernelcast.grafana.dashboards.programs.busy import busy_seconds
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, Calm, PanelText, Placed, stat
from kernelcast.grafana.model.targets import Query
from kernelcast.wire.catalogue import forecast, kernel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.kernels import COLLECTIVE

_LAUNCHES: Final = promql.series(kernel.LAUNCHES, free=("kernel",))
_WITHOUT_PARAMETERS: Final = r"((?:\\(anonymous namespace\\)|[^<(#])+).*"
"""A kernel's name up to its template arguments, parameters or hash; backslashes doubled for PromQL's string."""
_GPUS: Final = f"group by (Hostname, gpu, UUID) ({promql.series(device.FB_USED)} or {_LAUNCHES})"
_SOON_SECONDS: Final = 3600


def row() -> Row:
    """Three panels with names (kernel, breach, tunable), then three figures."""
    return Row("Fleet", (_hottest(), _breach(), _hints(), _programs(), _in_kernels(), _alerts()))


def _programs() -> Placed:
    text = PanelText("Programs", "Programs whose kernels are measured.")
    return stat(
        text, [Query(f"count(group by (program) ({_LAUNCHES}))")], Axis("short", low=0, decimals=0), width=8, height=3
    )


def _hottest() -> Placed:
    text = PanelText(
        "Hottest kernel",
        "The kernel with the most GPU time now, without its parameters, and its share of the GPU time of all kernels. "
        "Collectives are left out: their time is mostly a wait for other GPUs.",
    )
    every = busy_seconds(free=("kernel",))
    work = busy_seconds(extra=(f'kernel_class!="{COLLECTIVE}"',), free=("kernel",))
    hottest = f"topk(1, {promql.share(work, of=every, by='kernel')})"
    expr = f'label_replace({hottest}, "kernel", "$1", "kernel", "{_WITHOUT_PARAMETERS}")'
    axis = Axis("percentunit", low=0, high=1)
    return stat(text, [Query(expr, "{{kernel}}", instant=True)], axis, named=True, width=8)


def _breach() -> Placed:
    text = PanelText(
        "Soonest predicted breach",
        "The series that is expected to cross its threshold next, the cause, and the time after which half of the "
        "simulated paths have crossed it; 0 s means that it is beyond the threshold now.",
        calm=Calm("none predicted", living.PREDICTORS),
    )
    left = promql.series(forecast.DEGRADATION_TIME, extra=('quantile="0.5"',))
    expr = f"bottomk(1, min by (Hostname, gpu, metric, cause) ({left}))"
    query = Query(expr, "{{metric}} ({{cause}}) on {{Hostname}} GPU {{gpu}}", instant=True)
    axis = Axis("s", low=0, thresholds=((None, "red"), (_SOON_SECONDS, "orange")))
    return stat(text, [query], axis, named=True, width=8)


def _hints() -> Placed:
    text = PanelText(
        "What to change",
        "Tunables with hints in this time range, with the rule and the number of hints. Their outcomes are under "
        "Tuning hints.",
        calm=Calm("no hint", living.PREDICTORS),
    )
    issued = promql.happened(promql.series(forecast.HINTS_ISSUED), window="$__range")
    expr = f"topk(3, sum by (program, tunable, rule) ({issued}))"
    query = Query(expr, "{{program}}: {{tunable}} ({{rule}})", instant=True)
    return stat(text, [query], Axis("short", low=0, decimals=0), named=True, width=8)


def _in_kernels() -> Placed:
    text = PanelText(
        "GPU time in kernels",
        "Share of the GPUs' wall time that kernels took; streams that overlap can add up to more.",
    )
    expr = f"sum({busy_seconds(free=('kernel',))}) / scalar(count({_GPUS}))"
    return stat(text, [Query(expr)], Axis("percentunit", low=0), width=8, height=3)


def _alerts() -> Placed:
    text = PanelText(
        "Alerts firing",
        "Alerts of kernelcast that fire now. Without the heartbeat alert the rules are not loaded.",
    )
    firing = f'count(ALERTS{{alertstate="firing", alertname=~"{ALERT_NAMES}"}})'
    none = '0 * count(ALERTS{alertstate="firing", alertname="Watchdog"})'
    axis = Axis("short", low=0, decimals=0, thresholds=((None, "green"), (1, "red")))
    return stat(text, [Query(f"{firing} or {none}")], axis, width=8, height=3)
