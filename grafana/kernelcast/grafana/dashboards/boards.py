"""The dashboards: overview, GPUs, kernels, pipeline. Each answers one person's question, and links to the others."""

from kernelcast.grafana.addresses import GPUS, KERNELS, OVERVIEW, PIPELINE
from kernelcast.grafana.dashboards import (
    accelerators,
    device_time,
    devices,
    energy,
    fleet,
    forecasts,
    frame,
    gpu_errors,
    gpu_links,
    gpu_users,
    hints,
    hot_spots,
    infiniband,
    pipeline,
)
from kernelcast.grafana.model.dashboard import Dashboard


def overview() -> Dashboard:
    """How is the fleet: what runs, what is wrong, what will be."""
    return Dashboard(
        uid=OVERVIEW,
        title="kernelcast / Overview",
        description="The fleet at a glance: which kernel takes the time, which GPU is in trouble, what will breach.",
        tags=("gpu", "overview"),
        variables=frame.down_to_kernels(),
        annotations=(frame.alerts(), frame.hints()),
        rows=(fleet.row(), accelerators.row(), devices.glance(), device_time.glance()),
    )


def gpus() -> Dashboard:
    """How are the GPUs: load, heat, power, memory, errors."""
    return Dashboard(
        uid=GPUS,
        title="kernelcast / GPUs and TPUs",
        description="Every GPU: load, heat, power, memory, errors, links, and who uses it.",
        tags=("gpu", "hardware"),
        variables=frame.nodes_and_gpus(),
        annotations=(frame.alerts(),),
        rows=(
            *devices.rows(),
            gpu_errors.row(),
            gpu_links.row(),
            infiniband.row(),
            gpu_users.row(),
            accelerators.tpus(),
            gpu_users.gaps(),
        ),
    )


def kernels() -> Dashboard:
    """Where a program's GPU time goes, down to one kernel; what is predicted and hinted for it."""
    return Dashboard(
        uid=KERNELS,
        title="kernelcast / GPU kernels",
        description="Which kernel takes the time, which got slower, when it will breach, and what to change.",
        tags=("gpu", "kernels"),
        variables=(*frame.down_to_kernels(), *frame.which_forecast()),
        annotations=(frame.alerts(), frame.hints()),
        rows=(fleet.row(), hot_spots.row(), *device_time.rows(), energy.row(), forecasts.row(), hints.row()),
    )


def health() -> Dashboard:
    """How is kernelcast itself: exporters, probes, Kafka, bridge, predictor."""
    return Dashboard(
        uid=PIPELINE,
        title="kernelcast / Pipeline",
        description="kernelcast itself: whether it measures, what that costs, whether anything is lost on the way.",
        tags=("pipeline",),
        variables=frame.down_to_ranks(),
        annotations=(frame.alerts(),),
        rows=pipeline.rows(),
    )
