"""Pages about hardware: the fleet; GPUs and their nodes."""

from kernelcast.grafana.addresses import GPUS, OVERVIEW
from kernelcast.grafana.dashboards import fleet as panels
from kernelcast.grafana.dashboards import forecasts, frame, headlines
from kernelcast.grafana.dashboards.hardware import (
    accelerators,
    devices,
    gpu_errors,
    gpu_links,
    gpu_users,
    node,
    trouble,
)
from kernelcast.grafana.dashboards.pages.page import Page
from kernelcast.grafana.dashboards.programs import on_gpu
from kernelcast.grafana.model.dashboard import Dashboard


def fleet() -> Dashboard:
    """The fleet, worst first."""
    page = Page(
        OVERVIEW,
        "Fleet",
        "Which GPU needs me? Which job? Where do the GPU-hours go? A name leads to its page, an alert to its runbook.",
        ("gpu", "overview"),
    )
    figures = (
        headlines.breach(width=8, height=3, free=trouble.PROGRAMS),
        headlines.alerts(width=4),
        panels.answering(),
        panels.idle(),
        panels.standing(),
    )
    tables = (trouble.worst_first(), panels.alerts())
    rows = (panels.owners(), panels.over_time(), forecasts.everywhere(), accelerators.row())
    return page.dashboard(frame.hardware(), (*figures, *tables, panels.programs(), panels.parts()), rows)


def gpu() -> Dashboard:
    """GPUs and their nodes, side by side and one by one."""
    page = Page(
        GPUS,
        "GPU and node",
        "Which part of this node has a problem? What limits this GPU? Who uses it? The page opens on the node in the "
        "worst state; several can be chosen.",
        ("gpu", "hardware"),
    )
    figures = (
        headlines.breach(width=8, height=3, free=trouble.PROGRAMS),
        *devices.figures(),
        gpu_errors.xids_in_range(),
    )
    rows = (
        devices.limits_row(),
        devices.load(),
        gpu_errors.row(),
        gpu_links.row(),
        gpu_users.row(),
        on_gpu.row(),
        forecasts.of_hardware(),
        node.row(),
        accelerators.tpus(),
        gpu_users.gaps(),
    )
    variables = (*frame.everywhere(), trouble.worst_node(), *frame.gpus(), *forecasts.variables(forecasts.HARDWARE))
    tables = (trouble.worst_first(height=5), panels.alerts(height=5, here=True))
    first = (*figures, *tables, *devices.side_by_side())
    return page.dashboard(variables, first, rows)
