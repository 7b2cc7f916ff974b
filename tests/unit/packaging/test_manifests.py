"""The plain manifests of predictor and topics, and the chart as the command writes it; no helm is needed."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from kernelcast.grafana import dashboards, rules
from kernelcast.grafana.command import grafana
from kernelcast.grafana.prometheus import TRAVELS
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.runtime.settings.service import load

KUBERNETES = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes"


def documents(name: str) -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all((KUBERNETES / name).read_text())}


@pytest.mark.parametrize(("name", "kind"), [("predictor.yaml", "Deployment"), ("topics.yaml", "Job")])
def test_it_runs_without_rights(name: str, kind: str) -> None:
    pod = documents(name)[kind]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_predictor_takes_its_settings(tmp_path: Path) -> None:
    path = tmp_path / "kernelcast.yaml"
    path.write_text(documents("predictor.yaml")["ConfigMap"]["data"]["kernelcast.yaml"])
    made = load("predictor", PredictorSettings, path=path, flags={}, environ={})
    assert made.kafka.bootstrap_servers == "kafka.kafka.svc:9092"


def test_a_new_pod_or_container_of_the_predictor_has_the_name_under_which_its_scores_and_findings_are_saved() -> None:
    pod = documents("predictor.yaml")["Deployment"]["spec"]["template"]["spec"]
    compose = yaml.safe_load((KUBERNETES.parent / "compose" / "compose.yaml").read_text())
    assert (pod["hostname"], compose["services"]["predictor"]["hostname"]) == ("kernelcast-predictor", "predictor")


def test_the_charts_monitors_drop_the_series_that_reach_prometheus_through_the_bridge() -> None:
    template = (KUBERNETES.parent / "helm" / "kernelcast" / "templates" / "monitors.yaml").read_text()
    assert f"    regex: {TRAVELS}\n" in template


@pytest.mark.slow
def test_the_chart_is_written_with_dashboards_and_rules(tmp_path: Path) -> None:
    assert CliRunner().invoke(grafana, ["chart", "--output", str(tmp_path)]).exit_code == 0
    assert (tmp_path / "Chart.yaml").exists()
    assert (tmp_path / "templates" / "_helpers.tpl").exists()
    assert {path.name for path in (tmp_path / "files" / "dashboards").iterdir()} == set(dashboards.render())
    assert {path.name for path in (tmp_path / "files" / "rules").iterdir()} == {rules.CLASSIC_FILE, rules.ALERTS_FILE}
