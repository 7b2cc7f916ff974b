"""Variables that pages share, from the widest choice (data source, job) to the narrowest (kernel)."""

from typing import Any, Final

from kernelcast.grafana import promql
from kernelcast.grafana.model.variables import DatasourceVariable, LabelVariable
from kernelcast.wire.catalogue import forecast, kernel, runtime
from kernelcast.wire.catalogue.devices import accelerator

OWN_ALERTS: Final = 'alertname=~"Kernelcast.+", severity!="none"'
"""Matchers of our alerts for people: neither the heartbeat, Watchdog, nor those by which Alertmanager only mutes."""
ALERT_SUBJECT: Final = "Hostname, gpu, program"
"""Labels by which alerts are listed, counted and marked: a fault of a GPU slows many kernels of a program at once."""

_OWNED: Final = "|".join(promql.name(row) for row in (*promql.GPU_ROWS, accelerator.MEMORY_USED, kernel.PROBE_USER))
"""Series that name a job: of devices, and of programs with the probe."""

ANY_GPU: Final = "|".join(promql.name(row) for row in (*promql.GPU_ROWS, kernel.DEVICE_TIME, kernel.PROBE_USER))
"""Every GPU has one of the first rows, and every MIG instance, too. Device time has no user, so a
chosen user leaves the programs that are known to be that user's."""

ANY_NODE: Final = f"{ANY_GPU}|{promql.name(accelerator.MEMORY_USED)}"
"""Nodes with TPUs have no GPU series."""

_ANY_SERIES: Final = f"{ANY_NODE}|{promql.name(forecast.FORECAST_VALUE)}"
_ANYBODY: Final = ".*"
"""Also series without an owner."""
OWNER: Final = 'job=~"$job", hpc_job=~"$hpc_job", user=~"$user"'
_LAUNCHES_OF_PROGRAMS: Final = (
    f'{promql.name(kernel.LAUNCHES)}{{job=~"$job", Hostname=~"$hostname", gpu=~"$gpu", program=~"$program"}}'
)


def everywhere(*, service: bool = False) -> tuple[Any, ...]:
    """Variables of every page: data source, daemons, producer, job and user.

    Args:
        service: Whether the page is about the daemons, so that they are chosen from.
    """
    owned = f'{{__name__=~"{_OWNED}", job=~"$job"}}'
    users = f'{promql.name(kernel.PROBE_USER)}{{job=~"$job", hpc_job=~"$hpc_job"}}'
    return (
        DatasourceVariable(),
        LabelVariable("service", "Daemons", promql.name(runtime.BUILD_INFO), "job", all_value=None, hidden=not service),
        LabelVariable("job", "Measured by", f'{{__name__=~"{_ANY_SERIES}"}}', "job"),
        LabelVariable("hpc_job", "Job", owned, "hpc_job", all_value=_ANYBODY),
        LabelVariable("user", "User", users, "user", all_value=_ANYBODY),
    )


def nodes() -> tuple[Any, ...]:
    """Then the node."""
    here = f'{{__name__=~"{ANY_NODE}", {OWNER}}}'
    return (LabelVariable("hostname", "Node", here, "Hostname", all_value=None),)


def gpus() -> tuple[Any, ...]:
    """Then the GPU."""
    here = f'{{__name__=~"{ANY_GPU}", {OWNER}, Hostname=~"$hostname"}}'
    return (LabelVariable("gpu", "GPU", here, "gpu", all_value=None),)


def programs() -> LabelVariable:
    """Then the program."""
    reporting = f"{promql.name(kernel.LAUNCHES)}|{promql.name(kernel.PROBE_USER)}"
    here = f'{{__name__=~"{reporting}", {OWNER}, Hostname=~"$hostname", gpu=~"$gpu"}}'
    return LabelVariable("program", "Program", here, "program", all_value=None)


def ranks() -> LabelVariable:
    """Then its ranks."""
    return LabelVariable("rank", "Rank", _LAUNCHES_OF_PROGRAMS, "rank")


def kernels() -> LabelVariable:
    """Then its kernels."""
    return LabelVariable("kernel", "Kernel", _LAUNCHES_OF_PROGRAMS, "kernel")


def hardware() -> tuple[Any, ...]:
    """From the widest choice to GPUs."""
    return (*everywhere(), *nodes(), *gpus())


def daemons() -> tuple[Any, ...]:
    """The same for a page about the daemons, down to the ranks that they measure."""
    return (*everywhere(service=True), *nodes(), *gpus(), programs(), ranks())
