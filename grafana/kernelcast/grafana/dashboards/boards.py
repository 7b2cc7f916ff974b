"""The dashboards: overview, GPUs, kernels, pipeline. Each answers one person's question, and links to the others."""

from kernelcast.grafana.addresses import GPUS, KERNELS, OVERVIEW, PIPELINE
from kernelcast.grafana.dashboards import fleet, forecast_scores, forecasts, frame, pipeline, strip
from kernelcast.grafana.dashboards.hardware import accelerators, devices, gpu_errors, gpu_links, gpu_users, infiniband
from kernelcast.grafana.dashboards.programs import device_time, energy, hints, hot_spots
from kernelcast.grafana.model.dashboard import Dashboard


def overview() -> Dashboard:
    """The overview of the fleet: programs, problems, predictions."""
    return Dashboard(
        uid=OVERVIEW,
        title="kernelcast / Overview",
        description="The fleet at a glance: kernels with the most time, GPUs with problems, predicted breaches.",
        tags=("gpu", "overview"),
        variables=frame.down_to_kernels(),
        annotations=(frame.alerts(), frame.hints()),
        rows=(strip.row(), fleet.row(), accelerators.row(), devices.glance(), device_time.glance()),
    )


def gpus() -> Dashboard:
    """How are the GPUs: load, heat, power, memory, errors."""
    return Dashboard(
        uid=GPUS,
        title="kernelcast / GPUs and TPUs",
        description="Every GPU: load, heat, power, memory, errors, links, and its users.",
        tags=("gpu", "hardware"),
        variables=frame.nodes_and_gpus(),
        annotations=(frame.alerts(),),
        rows=(
            strip.row(),
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
    """The GPU time of programs, down to one kernel, with predictions and hints."""
    return Dashboard(
        uid=KERNELS,
        title="kernelcast / GPU kernels",
        description="Kernels with the most time, slower kernels, predicted breaches, and hints.",
        tags=("gpu", "kernels"),
        variables=(*frame.down_to_kernels(), *frame.which_forecast()),
        annotations=(frame.alerts(), frame.hints()),
        rows=(
            strip.row(),
            fleet.row(),
            hot_spots.row(),
            *device_time.rows(),
            energy.row(),
            forecasts.row(),
            forecast_scores.row(),
            hints.row(),
        ),
    )


def health() -> Dashboard:
    """How is kernelcast itself: exporters, probes, Kafka, bridge, predictor."""
    return Dashboard(
        uid=PIPELINE,
        title="kernelcast / Pipeline",
        description="kernelcast itself: measurement, overhead, and losses between GPU and Prometheus.",
        tags=("pipeline",),
        variables=frame.down_to_ranks(),
        annotations=(frame.alerts(),),
        rows=(strip.row(), *pipeline.rows()),
    )
