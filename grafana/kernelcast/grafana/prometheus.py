"""Prometheus's configuration for the bridge, the daemons' own metrics, the rules and Alertmanager."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kernelcast.grafana.rules.model import duration, to_yaml
from kernelcast.grafana.rules.recording import BRIDGE_JOB, EXPORTER_JOB, PREDICTOR_JOB

FILE: Final = "prometheus.yaml"

_HEADING: Final = "Made by `kernelcast grafana prometheus-config`."
_OF_WHAT: Final = "accelerator|anomaly|degradation|forecast|gpu|hint|infiniband|probe|tpu|tunable"
_TRAVELS: Final = f"cuda_.+|cupy_.+|DCGM_(FI|EXP)_.+|tpu_.+|kernelcast_({_OF_WHAT})_.+"
"""Series that reach Prometheus through Kafka and the bridge; a scrape of a daemon must not count them twice."""


@dataclass(frozen=True, slots=True)
class Daemons:
    """Daemons that Prometheus scrapes for their own metrics, each as `HOST:PORT`."""

    exporters: Sequence[str] = ()
    predictors: Sequence[str] = ()


def render(
    bridge_targets: Sequence[str],
    rule_files: Sequence[str],
    alertmanager: str | None,
    scrape_interval: int = 15,
    daemons: Daemons = Daemons(),
) -> str:
    """A complete configuration.

    Args:
        bridge_targets: Bridges, as `HOST:PORT`; their series keep the job and instance of who measured.
        rule_files: Paths of rule files, relative to the configuration or absolute; globs are allowed.
        alertmanager: Alertmanager as `HOST:PORT`; None leaves alerting out.
        scrape_interval: Seconds between scrapes and between evaluations.
        daemons: Exporters and predictors, for their own health; what travels through Kafka is left out there.
    """
    every = duration(scrape_interval)
    document: dict[str, Any] = {
        "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
        "rule_files": list(rule_files),
    }
    if alertmanager:
        document["alerting"] = {"alertmanagers": [_static([alertmanager])]}
    jobs = [_job(BRIDGE_JOB, bridge_targets) | {"honor_labels": True}]
    for job, targets in ((EXPORTER_JOB, daemons.exporters), (PREDICTOR_JOB, daemons.predictors)):
        if targets:
            jobs.append(_job(job, targets) | {"metric_relabel_configs": [_without_what_travels()]})
    document["scrape_configs"] = jobs
    return to_yaml(document, heading=_HEADING)


def _job(name: str, targets: Sequence[str]) -> dict[str, Any]:
    return {"job_name": name, "static_configs": [{"targets": list(targets)}]}


def _static(targets: Sequence[str]) -> dict[str, Any]:
    return {"static_configs": [{"targets": list(targets)}]}


def _without_what_travels() -> dict[str, Any]:
    return {"source_labels": ["__name__"], "regex": _TRAVELS, "action": "drop"}
