"""The fleet in six figures."""

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards.busy import busy_seconds
from kernelcast.grafana.dashboards.frame import ALERT_NAMES
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, Placed, Text, stat
from kernelcast.grafana.model.targets import Query
from kernelcast.wire.catalogue import device, kernel

_LAUNCHES = promql.series(kernel.LAUNCHES, free=("kernel",))
_GPUS = f"group by (Hostname, gpu, UUID) ({promql.series(device.GPU_UTIL)} or {_LAUNCHES})"


def row() -> Row:
    """How much there is, what it does most, and whether anything is wrong."""
    return Row("Fleet", (_origin(), _gpus(), _programs(), _hottest(), _in_kernels(), _alerts()))


def _origin() -> Placed:
    text = Text(
        "GPUs by origin of their data",
        "Whether these are live GPUs. Series that come from a recording or from the simulation carry the label source.",
    )
    counted = (
        f"count by (source) (group by (Hostname, gpu, UUID, source) ({promql.series(device.GPU_UTIL)} or {_LAUNCHES}))"
    )
    expr = f'label_replace({counted}, "source", "live", "source", "")'
    return stat(text, [Query(expr, "{{source}}")], Axis("short", low=0, decimals=0), named=True)


def _gpus() -> Placed:
    text = Text("GPUs", "GPUs that report device metrics or kernels, by node, index and UUID.")
    return stat(text, [Query(f"count({_GPUS})")], Axis("short", low=0, decimals=0))


def _programs() -> Placed:
    text = Text("Programs", "Programs whose kernels are measured.")
    return stat(text, [Query(f"count(group by (program) ({_LAUNCHES}))")], Axis("short", low=0, decimals=0))


def _hottest() -> Placed:
    text = Text(
        "Hottest kernel", "The kernel with the most GPU time now, and its share of the GPU time of all kernels."
    )
    every = busy_seconds(free=("kernel",))
    expr = f"topk(1, {promql.share(every, of=every, by='kernel')})"
    return stat(text, [Query(expr, "{{kernel}}", instant=True)], Axis("percentunit", low=0, high=1), named=True)


def _in_kernels() -> Placed:
    text = Text(
        "GPU time in kernels",
        "Share of the GPUs' wall time that kernels took; streams that overlap can add up to more.",
    )
    expr = f"sum({busy_seconds(free=('kernel',))}) / scalar(count({_GPUS}))"
    return stat(text, [Query(expr)], Axis("percentunit", low=0))


def _alerts() -> Placed:
    text = Text(
        "Alerts firing",
        "Alerts of kernelcast that fire now. No data means that the rules are not loaded: the heartbeat alert is "
        "missing.",
    )
    firing = f'count(ALERTS{{alertstate="firing", alertname=~"{ALERT_NAMES}"}})'
    none = '0 * count(ALERTS{alertstate="firing", alertname="Watchdog"})'
    axis = Axis("short", low=0, decimals=0, thresholds=((None, "green"), (1, "red")))
    return stat(text, [Query(f"{firing} or {none}")], axis)
