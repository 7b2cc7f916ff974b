"""Makes Prometheus's configuration: scrapes of the bridge and of the daemons' own metrics, rules, Alertmanager."""

from collections.abc import Sequence
from typing import Any, Final

from kernelcast.grafana.rules import ALERTS_FILE, CLASSIC_FILE
from kernelcast.grafana.rules.model import duration, to_yaml
from kernelcast.grafana.site import TRIAL, Site, Targets

FILE: Final = "prometheus.yaml"

_HEADING: Final = (
    "Made by `kernelcast grafana prometheus-config`. `kernelcast rules files --output DIR` writes the rule files.\n"
    "Check it with `promtool check config FILE`, and start Prometheus with `--config.file=FILE`."
)
_SUBJECTS: Final = "accelerator|degradation|diagnosis|forecast|gpu|hint|inference|nccl|probe|program|tpu|trial|tunable"
TRAVELS: Final = f"cuda_.+|cupy_.+|DCGM_(FI|EXP)_.+|hw_.+|tpu_.+|kernelcast_({_SUBJECTS})_.+"
"""Series that reach Prometheus through Kafka and the bridge; a scrape of a daemon must not count them twice."""

_HOSTNAME: Final = {"source_labels": ["hostname"], "regex": "(.+)", "target_label": "Hostname"}
"""dcgm-exporter has the host as `hostname` after 4.8.2, and our rules and dashboards as `Hostname`."""


def render(site: Site = TRIAL) -> str:
    """A complete configuration.

    Args:
        site: Its services' addresses and access. A service without a target has no job; the series of bridges keep the
            job and instance of the service that measured.
    """
    every = duration(site.prometheus.scrape_interval_seconds)
    document: dict[str, Any] = {
        "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
        "rule_files": [f"{site.prometheus.rules_directory}/{name}" for name in (CLASSIC_FILE, ALERTS_FILE)],
    }
    if site.alertmanager.targets:
        document["alerting"] = {"alertmanagers": [_reached(site.alertmanager)]}
    document["scrape_configs"] = [
        {"job_name": job} | _reached(targets) | of_series(job, site) for job, targets in jobs(site)
    ]
    return to_yaml(document, heading=_HEADING)


def jobs(site: Site) -> Sequence[tuple[str, Targets]]:
    """The jobs of a site's services, by the names that rules and dashboards use."""
    names = site.jobs
    services = (
        (names.bridge, site.bridge),
        (names.exporter, site.exporter),
        (names.predictor, site.predictor),
        (names.dcgm_exporter, site.dcgm_exporter),
    )
    return [(job, service) for job, service in services if service.targets]


def of_series(job: str, site: Site) -> dict[str, Any]:
    """Settings for a job's series: honoured labels and dropped metrics.

    Without a bridge nothing reaches Prometheus through Kafka, so that the daemons' own pages are kept whole, with the
    labels of the programs and GPUs.
    """
    if job == site.jobs.dcgm_exporter:
        return {"metric_relabel_configs": [_HOSTNAME]}
    if job == site.jobs.bridge or not site.bridge.targets:
        return {"honor_labels": True}
    dropped = {"source_labels": ["__name__"], "regex": TRAVELS, "action": "drop"}
    return {"metric_relabel_configs": [dropped]}


def _reached(service: Targets) -> dict[str, Any]:
    scheme = {"scheme": service.access.scheme} if service.access.scheme != "http" else {}
    return scheme | service.access.client() | {"static_configs": [{"targets": list(service.targets)}]}
