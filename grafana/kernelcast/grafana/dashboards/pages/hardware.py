"""Pages about hardware: the fleet, one node, one GPU."""

from kernelcast.grafana.addresses import GPUS, NODE, OVERVIEW
from kernelcast.grafana.dashboards import fleet as panels
from kernelcast.grafana.dashboards import frame, headlines
from kernelcast.grafana.dashboards.hardware import (
    accelerators,
    devices,
    gpu_errors,
    gpu_links,
    gpu_users,
    infiniband,
    one_gpu,
    trouble,
)
from kernelcast.grafana.dashboards.hardware import node as node_panels
from kernelcast.grafana.dashboards.pages.page import Page
from kernelcast.grafana.dashboards.programs import on_gpu
from kernelcast.grafana.model.dashboard import Dashboard, Row


def fleet() -> Dashboard:
    """The fleet, worst first."""
    page = Page(
        OVERVIEW,
        "Fleet",
        "Which GPU needs me now?",
        "The worst GPUs, the alerts that fire, utilisation, power and states of the fleet.",
        ("gpu", "overview"),
    )
    figures = (
        headlines.breach(width=8, height=3),
        headlines.alerts(width=4),
        panels.answering(),
        panels.idle(),
        panels.power_now(),
    )
    tables = (trouble.worst_first(width=14, height=7), panels.alerts(width=10, height=7))
    over_time = (panels.utilisation(), panels.power(), panels.states())
    programs = Row(
        "Programs",
        (
            headlines.hottest(),
            headlines.hints(),
            headlines.in_kernels(width=4, height=4),
            headlines.programs(width=4, height=4),
        ),
        collapsed=True,
    )
    return page.dashboard(frame.down_to_kernels(), (*figures, *tables, *over_time), (programs, accelerators.row()))


def node() -> Dashboard:
    """One node: GPUs, CPU, memory and links side by side."""
    page = Page(
        NODE,
        "Node",
        "Which part of this node has a problem?",
        "Its GPUs, CPU, memory and links side by side, then GPU by GPU.",
        ("gpu", "node"),
    )
    figures = (
        headlines.breach(width=9, height=3, free=trouble.PROGRAMS),
        headlines.alerts(width=5, everywhere=False),
        panels.answering(width=5),
        panels.power_now(width=5),
    )
    rows = (
        node_panels.gpus(),
        node_panels.one_gpu(),
        infiniband.row(),
        gpu_users.row(),
        accelerators.row(),
        accelerators.tpus(),
    )
    variables = (*frame.everywhere(), trouble.worst_node(), *frame.gpus())
    return page.dashboard(variables, (*figures, *node_panels.side_by_side()), rows)


def gpu() -> Dashboard:
    """Everything of one GPU."""
    page = Page(
        GPUS,
        "GPU",
        "How is this GPU, and what limits it?",
        "State, load, memory, temperature, power and clocks of one GPU; then errors, links and users.",
        ("gpu", "hardware"),
    )
    figures = (*one_gpu.figures(), headlines.breach(width=4, height=3, free=trouble.PROGRAMS))
    variables = (*frame.everywhere(), trouble.worst_node(), trouble.worst_gpu())
    rows = (on_gpu.row(), *devices.rows(), gpu_errors.row(), gpu_links.row(), gpu_users.row(), gpu_users.gaps())
    return page.dashboard(variables, (*figures, *devices.first_screen()), rows)
