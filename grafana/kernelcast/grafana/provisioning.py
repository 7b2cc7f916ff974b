"""Makes Grafana's provisioning files: from its start Grafana knows Prometheus and the dashboards by them."""

from types import MappingProxyType
from typing import Final

from kernelcast.grafana.rules.model import to_yaml

PROMETHEUS_URL: Final = "http://localhost:9090"
DASHBOARDS_PATH: Final = "/var/lib/grafana/dashboards/kernelcast"
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


def render(
    prometheus_url: str = PROMETHEUS_URL, dashboards_path: str = DASHBOARDS_PATH, scrape_interval: str = "15s"
) -> dict[str, str]:
    """The two provisioning files, by their path below the provisioning directory.

    Args:
        prometheus_url: Prometheus, as Grafana's server reaches it.
        dashboards_path: The directory, on Grafana's server, that holds the dashboards' JSON files.
        scrape_interval: Prometheus's; Grafana derives its shortest rate window from it.
    """
    settings = {"httpMethod": "POST", "prometheusType": "Prometheus", "timeInterval": scrape_interval}
    datasource = {**_DATASOURCE, "url": prometheus_url, "jsonData": settings}
    provider = {
        "name": "kernelcast",
        "folder": "kernelcast",
        "type": "file",
        "allowUiUpdates": False,
        "disableDeletion": False,
        "updateIntervalSeconds": 30,
        "options": {"path": dashboards_path, "foldersFromFilesStructure": False},
    }
    return {
        DATASOURCES_FILE: to_yaml({"apiVersion": 1, "datasources": [datasource]}, heading=_HEADING),
        PROVIDERS_FILE: to_yaml({"apiVersion": 1, "providers": [provider]}, heading=_HEADING),
    }
