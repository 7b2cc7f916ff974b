"""The page of kernelcast's own health."""

from kernelcast.grafana.addresses import PIPELINE
from kernelcast.grafana.dashboards import forecast_scores, frame
from kernelcast.grafana.dashboards import pipeline as panels
from kernelcast.grafana.dashboards.pages.page import Page
from kernelcast.grafana.model.dashboard import Dashboard


def pipeline() -> Dashboard:
    """Exporters, probes, Kafka, bridge, predictor."""
    page = Page(
        PIPELINE,
        "kernelcast itself",
        "Can the other pages be believed? Which daemon is down, what is lost and where, how old is the data? How good "
        "are the forecasts?",
        ("pipeline",),
    )
    return page.dashboard(frame.daemons(), panels.first_screen(), (*panels.rows(), forecast_scores.row()))
