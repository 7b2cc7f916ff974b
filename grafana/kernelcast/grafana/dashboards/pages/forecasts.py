"""The page of forecasts and degradation."""

from kernelcast.grafana.addresses import FORECASTS
from kernelcast.grafana.dashboards import forecast_scores, frame
from kernelcast.grafana.dashboards import forecasts as panels
from kernelcast.grafana.dashboards.pages.page import Page
from kernelcast.grafana.model.dashboard import Dashboard


def forecasts() -> Dashboard:
    """Time to thresholds, and forecasts over the values that came."""
    page = Page(
        FORECASTS,
        "Forecasts",
        "What will cross its limit, when, and how far to believe it?",
        "Time to threshold with skill and coverage, and the forecasts of one series over the values that came.",
        ("forecasts",),
    )
    variables = (*frame.everywhere(), *panels.variables())
    return page.dashboard(variables, panels.first_screen(), (*panels.rows(), forecast_scores.row()))
