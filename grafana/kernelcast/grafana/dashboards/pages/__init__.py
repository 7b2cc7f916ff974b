"""The eight pages, each a function that makes its `Dashboard`; `dashboards.render` writes them."""

from kernelcast.grafana.dashboards.pages.forecasts import forecasts
from kernelcast.grafana.dashboards.pages.hardware import fleet, gpu, node
from kernelcast.grafana.dashboards.pages.pipeline import pipeline
from kernelcast.grafana.dashboards.pages.programs import hints, kernels, synchronisation

__all__ = ["fleet", "forecasts", "gpu", "hints", "kernels", "node", "pipeline", "synchronisation"]
