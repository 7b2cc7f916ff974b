"""Makes Grafana's provisioning files: from its start Grafana knows Prometheus and the dashboards by them."""

from types import MappingProxyType
from typing import Final

from kernelcast.grafana.rules.model import duration, to_yaml
from kernelcast.grafana.site import TRIAL, Site

DATASOURCES_FILE: Final = "datasources/kernelcast.yaml"
PROVIDERS_FILE: Final = "dashboards/kernelcast.yaml"

_HEADING: Final = "Made by kernelcast; goes below Grafana's provisioning directory."
_DATASOURCE: Final = MappingProxyType(
    {
        "name": "Prometheus",
        "uid": "kernelcast-prometheus",
        "type": "prometheus",
        "access": "proxy",
        "isDefault": True,
        "editable": False,
    }
)


def render(site: Site = TRIAL) -> dict[str, str]:
    """The two provisioning files, by their path below the provisioning directory.

    Grafana derives its shortest rate window from Prometheus's scrape interval.
    """
    interval = duration(site.prometheus.scrape_interval_seconds)
    settings = {"httpMethod": "POST", "prometheusType": "Prometheus", "timeInterval": interval}
    datasource = {**_DATASOURCE, "url": site.prometheus.url, "jsonData": settings}
    provider = {
        "name": "kernelcast",
        "folder": "kernelcast",
        "type": "file",
        "allowUiUpdates": False,
        "disableDeletion": False,
        "updateIntervalSeconds": 30,
        "options": {"path": site.grafana.dashboards_path, "foldersFromFilesStructure": False},
    }
    return {
        DATASOURCES_FILE: to_yaml({"apiVersion": 1, "datasources": [datasource]}, heading=_HEADING),
        PROVIDERS_FILE: to_yaml({"apiVersion": 1, "providers": [provider]}, heading=_HEADING),
    }
