"""Makes objects for a cluster with the Prometheus operator and Grafana's sidecar: rules, monitors, dashboards.

Sources: the operator's API `monitoring.coreos.com/v1`; the sidecar's label and annotation as in the charts of Grafana
and kube-prometheus-stack.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml

from kernelcast.grafana.prometheus import jobs, of_series
from kernelcast.grafana.rules.model import duration, to_yaml
from kernelcast.grafana.site import Kubernetes, ServerAccess, Site, Targets

NAME_LABEL: Final = "app.kubernetes.io/name"
"""Label of services and pods; its value is the job, so that rules and dashboards find their series."""
PORT: Final = "http"
FOLDER_ANNOTATION: Final = "grafana_folder"
_OPERATOR: Final = "monitoring.coreos.com/v1"
_PLACES: Final = "container|endpoint|namespace|node|pod|service"
"""Labels that the operator adds to a target. Ours name the pod of a program; the exporter's pod must not fill them."""
_OPERATORS_NAMES: Final = {"source_labels": "sourceLabels", "target_label": "targetLabel"}
_HEADING: Final = "Made by `kernelcast {command}`."


def configmaps(dashboards: Mapping[str, str], site: Site) -> dict[str, str]:
    """One ConfigMap for each dashboard, by file name; `kubectl apply` needs `--server-side` for texts of this size."""
    files = {}
    for name, text in dashboards.items():
        stem = name.removesuffix(".json")
        labels = {site.kubernetes.dashboard_label: "1"}
        metadata = _metadata(stem, site.kubernetes, labels) | {"annotations": {FOLDER_ANNOTATION: site.grafana.folder}}
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {name: text}}
        files[f"{stem}.configmap.yaml"] = to_yaml(document, heading=_HEADING.format(command="grafana files"))
    return files


def prometheus_rules(rule_files: Mapping[str, str], site: Site) -> dict[str, str]:
    """One PrometheusRule for each rule file, by file name."""
    files = {}
    for name, text in rule_files.items():
        stem = f"kernelcast-{name.removesuffix('.yaml')}"
        document = {
            "apiVersion": _OPERATOR,
            "kind": "PrometheusRule",
            "metadata": _metadata(stem, site.kubernetes, site.kubernetes.labels),
            "spec": {"groups": yaml.safe_load(text)["groups"]},
        }
        files[f"{stem}.prometheusrule.yaml"] = to_yaml(document, heading=_HEADING.format(command="rules files"))
    return files


def monitors(kind: str, site: Site) -> dict[str, str]:
    """One ServiceMonitor or PodMonitor for each service, by file name; its job is the name that rules use."""
    endpoints = "endpoints" if kind == "ServiceMonitor" else "podMetricsEndpoints"
    files = {}
    for job, service in jobs(site):
        document = {
            "apiVersion": _OPERATOR,
            "kind": kind,
            "metadata": _metadata(job, site.kubernetes, site.kubernetes.labels),
            "spec": {
                "jobLabel": NAME_LABEL,
                "selector": {"matchLabels": {NAME_LABEL: job}},
                "namespaceSelector": {"matchNames": [site.kubernetes.namespace]},
                endpoints: [_endpoint(job, service, site)],
            },
        }
        files[f"{job}.{kind.lower()}.yaml"] = to_yaml(document, heading=_HEADING.format(command="scrape files"))
    return files


def _endpoint(job: str, service: Targets, site: Site) -> dict[str, Any]:
    every = duration(site.prometheus.scrape_interval_seconds)
    series = of_series(job, site)
    endpoint: dict[str, Any] = {"port": PORT, "interval": every, "scrapeTimeout": every}
    endpoint |= _secured(service.access, site.kubernetes)
    endpoint |= {"honorLabels": True} if series.get("honor_labels") else {}
    endpoint["relabelings"] = [{"action": "labeldrop", "regex": _PLACES}]
    relabelled: Sequence[Mapping[str, Any]] = series.get("metric_relabel_configs", ())
    if relabelled:
        endpoint["metricRelabelings"] = [
            {_OPERATORS_NAMES.get(key, key): value for key, value in one.items()} for one in relabelled
        ]
    return endpoint


def _secured(access: ServerAccess, names: Kubernetes) -> dict[str, Any]:
    """TLS and user of an endpoint, from secrets that exist in the cluster."""
    found: dict[str, Any] = {}
    if access.scheme == "https":
        found["scheme"] = "https"
    if names.tls_secret:
        found["tlsConfig"] = {"ca": {"secret": {"name": names.tls_secret, "key": "ca.crt"}}}
    if names.user_secret:
        found["basicAuth"] = {key: {"name": names.user_secret, "key": key} for key in ("username", "password")}
    return found


def _metadata(name: str, names: Kubernetes, labels: Mapping[str, str]) -> dict[str, Any]:
    ours = {"app.kubernetes.io/part-of": "kernelcast", **labels}
    return {"name": name, "namespace": names.namespace, "labels": ours}
