"""The dashboard "kernelcast / GPU kernels": which kernel, on which GPU, since when, until when, and what to change."""

from kernelcast.grafana.dashboards import device_time, devices, fleet, forecasts, hints, hot_spots, pipeline
from kernelcast.grafana.dashboards.frame import annotations, variables
from kernelcast.grafana.model.dashboard import Dashboard


def gpu_kernels() -> Dashboard:
    """From the fleet down to one kernel, what is predicted and hinted for it, and then the GPUs and the pipeline."""
    return Dashboard(
        uid="kernelcast-kernels",
        title="kernelcast / GPU kernels",
        description="Which kernel takes the time, which got slower, when it will breach, and what to change.",
        tags=("gpu", "kernels"),
        variables=variables(),
        annotations=annotations(),
        rows=(
            fleet.row(),
            hot_spots.row(),
            forecasts.row(),
            hints.row(),
            device_time.row(),
            devices.row(),
            pipeline.row(),
        ),
    )
