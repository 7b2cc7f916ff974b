"""Makes the served dashboards and the forwarder that answers their queries from a Prometheus; `Bridge` makes one."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from kernelcast.bridge.browser import models
from kernelcast.bridge.browser.prometheus import PrometheusProxy
from kernelcast.bridge.browser.settings import PagesSettings
from kernelcast.bridge.browser.site import PATH, PageSite


class ServedPages:
    """Stops the part that answers the pages' queries.

    Args:
        settings: Of the pages; without a `prometheus_url` their address leads to the bridge's first page.
    """

    def __init__(self, settings: PagesSettings) -> None:
        self._settings = settings
        asked = settings.enabled and bool(settings.prometheus_url)
        self._prometheus = PrometheusProxy(settings) if asked else None

    def stop(self) -> None:
        """Queries that wait for Prometheus end with an error, so that a stop need not wait."""
        if self._prometheus is not None:
            self._prometheus.close()

    def routes(self) -> list[Route]:
        """Return the routes of the pages."""
        if self._prometheus is not None:
            return PageSite(self._settings, models.load(), prometheus=self._prometheus).routes()
        paths = (PATH, f"{PATH}/{{uid}}") if self._settings.enabled else ()
        return [Route(path, _first_page, include_in_schema=False) for path in paths]


async def _first_page(_request: Request) -> Response:
    """Lead to the bridge's first page."""
    return RedirectResponse("/", status_code=307)
