"""All dashboards and their JSON text by file name; `output` writes them, `routes` bring them to a site."""

from collections.abc import Callable
from typing import Final

from kernelcast.grafana.dashboards import pages
from kernelcast.grafana.model.dashboard import Dashboard

DASHBOARDS: Final[tuple[Callable[[], Dashboard], ...]] = (
    pages.fleet,
    pages.program,
    pages.gpu,
    pages.servers,
    pages.pipeline,
)


def render(runbooks_url: str = "") -> dict[str, str]:
    """The JSON text of every dashboard, by file name; the name is the dashboard's uid.

    Args:
        runbooks_url: The page of runbooks, which panels link to; nothing without it.
    """
    made = [build() for build in DASHBOARDS]
    return {f"{dashboard.uid}.json": dashboard.render(runbooks_url) for dashboard in made}


__all__ = ["DASHBOARDS", "render"]
