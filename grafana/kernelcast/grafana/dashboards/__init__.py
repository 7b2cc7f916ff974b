"""Every dashboard, by the file it is committed as."""

from collections.abc import Callable
from typing import Final

from kernelcast.grafana.dashboards import boards
from kernelcast.grafana.model.dashboard import Dashboard

DASHBOARDS: Final[tuple[Callable[[], Dashboard], ...]] = (boards.overview, boards.gpus, boards.kernels, boards.health)


def render() -> dict[str, str]:
    """The JSON text of every dashboard, by file name; the name is the dashboard's uid."""
    made = [build() for build in DASHBOARDS]
    return {f"{dashboard.uid}.json": dashboard.render() for dashboard in made}


__all__ = ["DASHBOARDS", "render"]
