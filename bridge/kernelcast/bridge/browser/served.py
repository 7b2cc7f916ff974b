"""The dashboards that a bridge serves, and who answers their queries: a Prometheus, or the bridge's own series.

`Bridge` makes one `ServedPages` and gives its routes to the web server.
"""

from collections.abc import Callable

from starlette.routing import Route

from kernelcast.bridge.browser import models
from kernelcast.bridge.browser.local import LocalPages
from kernelcast.bridge.browser.prometheus import PrometheusProxy
from kernelcast.bridge.browser.settings import PagesSettings
from kernelcast.bridge.browser.site import PageSite
from kernelcast.bridge.pages.layout import SnapshotSource


class ServedPages:
    """Starts and stops the part that answers the pages' queries; nothing where no pages are served."""

    def __init__(self, settings: PagesSettings, store: SnapshotSource, *, hidden: Callable[[], bool]) -> None:
        """Prepare; `start` begins to read the store.

        Args:
            settings: Of the pages; `prometheus_url` decides who answers.
            store: The bridge's series.
            hidden: Whether these must not be shown now.
        """
        self._settings = settings
        self._local: LocalPages | None = None
        self._prometheus: PrometheusProxy | None = None
        if settings.enabled and settings.prometheus_url:
            self._prometheus = PrometheusProxy(settings)
        elif settings.enabled:
            self._local = LocalPages(settings, store, hidden=hidden)

    def start(self) -> None:
        """Start to read the store, where its series answer."""
        if self._local is not None:
            self._local.start()

    def stop(self) -> None:
        """Stop reading; queries that wait for Prometheus end with an error, so that a stop need not wait."""
        if self._local is not None:
            self._local.stop()
        if self._prometheus is not None:
            self._prometheus.close()

    def routes(self) -> list[Route]:
        """Return the routes of the pages."""
        if self._local is not None:
            return PageSite(self._settings, self._local.models(), local=self._local).routes()
        if self._prometheus is not None:
            return PageSite(self._settings, models.load(), prometheus=self._prometheus).routes()
        return []
