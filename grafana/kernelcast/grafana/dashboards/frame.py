"""Parts that all dashboards share: variables, and events drawn over every graph."""

from typing import Any, Final

from kernelcast.grafana import promql
from kernelcast.grafana.model.dashboard import Annotation
from kernelcast.grafana.model.variables import DatasourceVariable, LabelVariable
from kernelcast.wire.catalogue import forecast, kernel
from kernelcast.wire.catalogue.devices import accelerator, device

ALERT_NAMES: Final = "Kernelcast.+"
"""How all of our alerts are named; the heartbeat is called Watchdog and does not count as one."""

_ANY_SUBJECT: Final = "|".join(promql.name(row) for row in (device.FB_USED, kernel.LAUNCHES))
"""Frame buffer memory: the one metric that every GPU has, and every MIG instance, too."""

_ANY_NODE: Final = f"{_ANY_SUBJECT}|{promql.name(accelerator.MEMORY_USED)}"
"""Nodes with TPUs have no GPU series."""

_ANY_SERIES: Final = f"{_ANY_NODE}|{promql.name(forecast.FORECAST_VALUE)}"


def nodes_and_gpus() -> tuple[Any, ...]:
    """Variables for hardware: data source, job, node, GPU."""
    here = f'{{__name__=~"{_ANY_NODE}", job=~"$job"}}'
    node = 'job=~"$job", Hostname=~"$hostname"'
    return (
        DatasourceVariable(),
        LabelVariable("job", "Job", f'{{__name__=~"{_ANY_SERIES}"}}', "job"),
        LabelVariable("hostname", "Node", here, "Hostname"),
        LabelVariable("gpu", "GPU", f'{{__name__=~"{_ANY_SUBJECT}", {node}}}', "gpu"),
    )


def down_to_ranks() -> tuple[Any, ...]:
    """Variables for programs: the hardware's, then program and rank."""
    launches = promql.name(kernel.LAUNCHES)
    gpus = 'job=~"$job", Hostname=~"$hostname", gpu=~"$gpu"'
    return (
        *nodes_and_gpus(),
        LabelVariable("program", "Program", f"{launches}{{{gpus}}}", "program"),
        LabelVariable("rank", "Rank", f'{launches}{{{gpus}, program=~"$program"}}', "rank"),
    )


def down_to_kernels() -> tuple[Any, ...]:
    """Then the kernel: from the widest choice to the narrowest."""
    one = 'job=~"$job", Hostname=~"$hostname", gpu=~"$gpu", program=~"$program"'
    return (
        *down_to_ranks(),
        LabelVariable("kernel", "Kernel", f"{promql.name(kernel.LAUNCHES)}{{{one}}}", "kernel"),
    )


def which_forecast() -> tuple[Any, ...]:
    """Variables of the forecast row."""
    value = promql.name(forecast.FORECAST_VALUE)
    return (
        LabelVariable("metric", "Forecast of", f'{value}{{job=~"$job"}}', "metric", several=False),
        LabelVariable("horizon", "Horizon", f'{value}{{job=~"$job", metric="$metric"}}', "horizon", several=False),
    )


def alerts() -> Annotation:
    """Alerts while they fire."""
    return Annotation(
        "Alerts",
        f'ALERTS{{alertstate="firing", alertname=~"{ALERT_NAMES}"}}',
        "{{alertname}}",
        "{{severity}} {{Hostname}} GPU {{gpu}} {{program}} {{kernel}}",
        "red",
    )


def hints() -> Annotation:
    """Hints when programs act on them; needs the variables down to ranks."""
    acted = promql.series(kernel.HINT_OUTCOMES, extra=('state=~"applied|kept|rolled_back"',))
    return Annotation(
        "Hints",
        f"sum by (program, tunable, state) ({promql.increase(acted)}) > 0",
        "Hint {{state}}",
        "{{program}}: {{tunable}}",
        "purple",
    )
