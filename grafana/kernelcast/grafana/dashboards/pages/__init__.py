"""The five pages, each a function that makes its `Dashboard`; `dashboards.render` writes them."""

from kernelcast.grafana.dashboards.pages.hardware import fleet, gpu
from kernelcast.grafana.dashboards.pages.pipeline import pipeline
from kernelcast.grafana.dashboards.pages.programs import program
from kernelcast.grafana.dashboards.pages.serving import servers

__all__ = ["fleet", "gpu", "pipeline", "program", "servers"]
