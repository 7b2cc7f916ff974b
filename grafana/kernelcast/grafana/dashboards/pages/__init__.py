"""The eight pages, from the fleet to a hint, and the pipeline itself."""

from kernelcast.grafana.dashboards.pages.forecasts import forecasts
from kernelcast.grafana.dashboards.pages.hardware import fleet, gpu, node
from kernelcast.grafana.dashboards.pages.pipeline import pipeline
from kernelcast.grafana.dashboards.pages.programs import hints, kernels, synchronisation

__all__ = ["fleet", "forecasts", "gpu", "hints", "kernels", "node", "pipeline", "synchronisation"]
