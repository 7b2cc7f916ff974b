"""The line about the data at the top of every page: newest sample and GPUs by source, and what is wrong with them."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.model.panels import Axis, PanelText, Placed, named, stat
from kernelcast.grafana.model.targets import Query
from kernelcast.wire.catalogue import bridge, kernel
from kernelcast.wire.catalogue.devices import gpu

_LATE_SECONDS, _OLD_SECONDS = 60, 300
"""Ages from which the data is shown in orange, and in red."""
_LOOK_BACK: Final = "[1h:1m]"
"""Subquery window in which the newest sample is looked for."""
_GPU: Final = "Hostname, gpu, UUID"
_ALL: Final = ("program", "rank")
"""Labels that are not narrowed: pages about hardware have no such variables."""
_SIZES: Final = {"titleSize": 12, "valueSize": 16}
"""Pixels: Grafana would write figures in so low a panel in letters of 4 pixels."""
_SILENT: Final = "silent producers"
_RULES: Final = "alerts"


def panel(*, width: int, height: int) -> Placed:
    """Age and GPUs; then silent producers and missing rules, which are there only while something is wrong."""
    text = PanelText(
        "Data",
        "Time since the newest sample of a GPU or a program, looked for within the last hour: all other figures on "
        "this page are at least as old. While Kafka does not answer, it is the time since its last answer. Then GPUs "
        "by source: live, from a recording, or simulated. Producers that missed several intervals, and that the rules "
        "of alerts are not loaded, are shown only while it is so. No data: nothing was measured for an hour.",
        runbooks=("KernelcastExporterStale", "KernelcastKafkaUnreachable"),
    )
    queries = [
        Query(_age(), "newest sample"),
        Query(_gpus(), "GPUs {{source}}"),
        Query(f"sum(1 - max by (job, instance) ({promql.series(bridge.PRODUCER_UP)})) > 0", _SILENT),
        Query(
            f'0 * group({liveness.GPUS}) unless on () ALERTS{{alertstate="firing", alertname="Watchdog"}}',
            _RULES,
        ),
    ]
    axis = Axis("short", low=0, decimals=0, thresholds=((None, "text"),))
    placed = stat(text, queries, axis, named=True, width=width, height=height)
    placed.panel.options["text"] = dict(_SIZES)
    placed.panel.field_config["overrides"] = [
        named("newest sample", ((None, "text"), (_LATE_SECONDS, "orange"), (_OLD_SECONDS, "red")), unit="s"),
        named(_SILENT, ((None, "text"), (1, "red"))),
        named(_RULES, ((None, "orange"),), words={"0": ("no rules", "orange")}),
    ]
    return placed


def _age() -> str:
    newest = [promql.series(row, free=_ALL) for row in (gpu.GPU_UP, kernel.DEVICE_TIME)]
    # A subquery looks at whole minutes, so that data of now would seem up to a minute old.
    now = [f"max(timestamp({each}))" for each in newest]
    ages = " or ".join([*now, *(f"max(max_over_time(timestamp({each}){_LOOK_BACK}))" for each in newest)])
    outage = f"(max({promql.series(bridge.KAFKA_OUTAGE)}) or vector(0))"
    return f"time() - ({ages}) + {outage}"


def _gpus() -> str:
    measured = f"group by ({_GPU}, source) ({promql.measured_here()} or {promql.series(kernel.DEVICE_TIME, free=_ALL)})"
    return f'label_replace(count by (source) ({measured}), "source", "live", "source", "")'
