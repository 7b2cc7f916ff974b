"""What the dashboards share: their variables and the events drawn over every graph."""

from typing import Any, Final

from kernelcast.grafana import promql
from kernelcast.grafana.model.dashboard import Annotation
from kernelcast.grafana.model.variables import DatasourceVariable, LabelVariable
from kernelcast.wire.catalogue import device, forecast, kernel

ALERT_NAMES: Final = "Kernelcast.+"
"""How all of our alerts are named; the heartbeat is called Watchdog and does not count as one."""

_ANY_SUBJECT: Final = "|".join(promql.name(row) for row in (device.GPU_UTIL, kernel.LAUNCHES))
_ANY_SERIES: Final = f"{_ANY_SUBJECT}|{promql.name(forecast.FORECAST_VALUE)}"


def variables() -> tuple[Any, ...]:
    """Data source, then from the widest choice to the narrowest; the last two choose what the forecast row shows."""
    here = f'{{__name__=~"{_ANY_SUBJECT}", job=~"$job"}}'
    launches = promql.name(kernel.LAUNCHES)
    node = 'job=~"$job", Hostname=~"$hostname"'
    value = promql.name(forecast.FORECAST_VALUE)
    return (
        DatasourceVariable(),
        LabelVariable("job", "Job", f'{{__name__=~"{_ANY_SERIES}"}}', "job"),
        LabelVariable("hostname", "Node", here, "Hostname"),
        LabelVariable("gpu", "GPU", f'{{__name__=~"{_ANY_SUBJECT}", {node}}}', "gpu"),
        LabelVariable("program", "Program", f'{launches}{{{node}, gpu=~"$gpu"}}', "program"),
        LabelVariable("kernel", "Kernel", f'{launches}{{{node}, gpu=~"$gpu", program=~"$program"}}', "kernel"),
        LabelVariable("metric", "Forecast of", f'{value}{{job=~"$job"}}', "metric", several=False),
        LabelVariable("horizon", "Horizon", f'{value}{{job=~"$job", metric="$metric"}}', "horizon", several=False),
    )


def annotations() -> tuple[Annotation, ...]:
    """Alerts while they fire, and hints when programs act on them."""
    acted = promql.series(kernel.HINT_OUTCOMES, extra=('state=~"applied|kept|rolled_back"',))
    return (
        Annotation(
            "Alerts",
            f'ALERTS{{alertstate="firing", alertname=~"{ALERT_NAMES}"}}',
            "{{alertname}}",
            "{{severity}} {{Hostname}} GPU {{gpu}} {{program}} {{kernel}}",
            "red",
        ),
        Annotation(
            "Hints",
            f"sum by (program, tunable, state) ({promql.increase(acted)}) > 0",
            "Hint {{state}}",
            "{{program}}: {{tunable}}",
            "purple",
        ),
    )
