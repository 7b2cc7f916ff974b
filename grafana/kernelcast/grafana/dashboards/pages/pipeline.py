"""The page of kernelcast's own health."""

from kernelcast.grafana.addresses import PIPELINE
from kernelcast.grafana.dashboards import frame
from kernelcast.grafana.dashboards import pipeline as panels
from kernelcast.grafana.dashboards.pages.page import Page
from kernelcast.grafana.model.dashboard import Dashboard


def pipeline() -> Dashboard:
    """Exporters, probes, Kafka, bridge, predictor."""
    page = Page(
        PIPELINE,
        "Pipeline",
        "Can the other pages be believed?",
        "Whether the daemons run, whether anything is lost, and how old the data is; then each daemon.",
        ("pipeline",),
    )
    return page.dashboard(frame.down_to_ranks(service=True), panels.first_screen(), panels.rows())
