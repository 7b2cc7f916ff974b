"""The Helm chart, rendered by helm, against Kubernetes' schemas and the commands that it must equal."""

import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.service.built import HELM
from typer.testing import CliRunner

from kernelcast.bridge.settings import BridgeSettings
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.grafana import dashboards, rules
from kernelcast.grafana.command import grafana, scrape
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.runtime.settings.service import ServiceSettings, load
from release import manifests

MODELS: dict[str, type[ServiceSettings]] = {
    "exporter": ExporterSettings,
    "bridge": BridgeSettings,
    "predictor": PredictorSettings,
}
SECURED = {
    "kafka": {"properties": {"security.protocol": "SASL_SSL"}, "caSecret": "kafka-ca"},
    "web": {"secret": "web", "tls": True, "userSecret": "scraper", "caSecret": "authority"},
    **{name: {"saslSecret": f"{name}-user"} for name in ("exporter", "bridge", "predictor", "topics")},
    "pullSecrets": [{"name": "registry"}],
    "monitorLabels": {"release": "prom"},
    "labels": {"team": "ml"},
    "networkPolicy": {"enabled": True},
    "image": {"digest": f"sha256:{'0' * 64}"},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "services are monitored": {**SECURED, "monitor": "service"},
    "pods are monitored": {**SECURED, "monitor": "pod", "exporter": {"podLabels": True, "runAsRoot": True}},
    "several predictors": {**SECURED, "predictor": {"replicas": 3, "saslSecret": "predictor-user"}},
    "no Kafka": {
        **{name: {"enabled": False} for name in ("bridge", "predictor", "topics")},
        "exporter": {"settings": {"to_kafka": "off"}},
        "monitor": "pod",
    },
}


@pytest.fixture
def helm() -> str:
    return manifests.helm() or str(HELM.found())


def rendered(helm: str, directory: Path, values: Mapping[str, Any], chart: Path = manifests.CHART) -> list[Any]:
    path = directory / "values.yaml"
    path.write_text(yaml.safe_dump(dict(values)))
    text = manifests.template(helm, chart, f"--values={path}")
    return [document for document in yaml.safe_load_all(text) if document]


def by_kind(documents: list[Any], kind: str) -> dict[str, Any]:
    return {one["metadata"]["name"]: one for one in documents if one["kind"] == kind}


def test_helm_finds_nothing_to_complain_about(helm: str) -> None:
    done = subprocess.run([helm, "lint", "--strict", manifests.CHART], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("variant", VARIANTS)
def test_kubernetes_takes_every_object(helm: str, tmp_path: Path, variant: str) -> None:
    documents = rendered(helm, tmp_path, VARIANTS[variant])
    ours = [one for one in documents if not one["apiVersion"].startswith("monitoring.coreos.com/")]
    assert ours
    for document in ours:
        kubernetes_validate.validate(document, manifests.KUBERNETES.rpartition(".")[0], strict=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_services_take_their_settings(helm: str, tmp_path: Path, variant: str) -> None:
    maps = by_kind(rendered(helm, tmp_path, VARIANTS[variant]), "ConfigMap")
    assert maps
    for name, document in maps.items():
        service = name.removeprefix("kernelcast-")
        path = tmp_path / "kernelcast.yaml"
        path.write_text(document["data"]["kernelcast.yaml"])
        made = load(service, MODELS[service], path=path, flags={}, environ={})
        secured = "web" in VARIANTS[variant]
        assert str(made.web.config_file) == ("/etc/kernelcast-web/web.yml" if secured else "None")
        assert ("ssl.ca.location" in made.kafka.properties) == secured


def test_the_plain_manifests_are_the_charts_rendering(helm: str) -> None:
    for name, text in manifests.manifests(helm).items():
        assert (manifests.MANIFESTS / name).read_text() == text, "run: python -m release.manifests"


@pytest.mark.parametrize(("monitor", "kind"), [("service", "ServiceMonitor"), ("pod", "PodMonitor")])
def test_monitors_are_one_kind_or_the_other_and_equal_those_of_the_command(
    helm: str, tmp_path: Path, monitor: str, kind: str
) -> None:
    documents = rendered(helm, tmp_path, {**SECURED, "monitor": monitor})
    kinds = {one["kind"] for one in documents}
    assert kinds & {"ServiceMonitor", "PodMonitor"} == {kind}
    access = "{targets: ['a:1'], access: {scheme: https}}"
    site = tmp_path / "site.yaml"
    site.write_text(
        f"bridge: {access}\nexporter: {access}\npredictor: {access}\n"
        "kubernetes: {labels: {release: prom}, tls_secret: authority, user_secret: scraper}\n"
    )
    arguments = ["files", "--flavor", kind.lower(), "--site", str(site), "--output", str(tmp_path / "monitors")]
    assert CliRunner().invoke(scrape, arguments).exit_code == 0
    written = [yaml.safe_load(path.read_text()) for path in (tmp_path / "monitors").iterdir()]
    assert {one["metadata"]["name"]: one["spec"] for one in written} == {
        name: one["spec"] for name, one in by_kind(documents, kind).items()
    }
    if kind == "ServiceMonitor":
        services = by_kind(documents, "Service")
        assert set(services) == set(by_kind(documents, kind)), "a monitor selects services"
        assert all(one["metadata"]["labels"]["app.kubernetes.io/name"] == name for name, one in services.items())


def test_without_a_bridge_the_exporter_is_scraped_whole(helm: str, tmp_path: Path) -> None:
    (monitor,) = by_kind(rendered(helm, tmp_path, VARIANTS["no Kafka"]), "PodMonitor").values()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["honorLabels"] is True
    assert "metricRelabelings" not in endpoint


def test_rules_and_dashboards_are_those_of_the_generator(helm: str, tmp_path: Path) -> None:
    chart = tmp_path / "chart"
    assert CliRunner().invoke(grafana, ["chart", "--output", str(chart)]).exit_code == 0
    values = {"rules": {"enabled": True}, "dashboards": {"enabled": True}, "monitorLabels": {"release": "prom"}}
    documents = rendered(helm, tmp_path, values, chart)
    found = by_kind(documents, "PrometheusRule")
    made = rules.render(rules.PRODUCTION)
    for name in (rules.CLASSIC_FILE, rules.ALERTS_FILE):
        rule = found.pop(f"kernelcast-{name.removesuffix('.yaml')}")
        assert rule["spec"]["groups"] == yaml.safe_load(made[name])["groups"]
        assert rule["metadata"]["labels"]["release"] == "prom"
    assert not found
    maps = {name: one for name, one in by_kind(documents, "ConfigMap").items() if "kernelcast.yaml" not in one["data"]}
    texts = {name: text for one in maps.values() for name, text in one["data"].items()}
    assert {name: yaml.safe_load(text) for name, text in texts.items()} == {
        name: yaml.safe_load(text) for name, text in dashboards.render().items()
    }
    assert all(one["metadata"]["labels"]["grafana_dashboard"] == "1" for one in maps.values())


@pytest.mark.parametrize("what", ["rules", "dashboards"])
def test_a_chart_without_rules_says_which_command_writes_one(helm: str, tmp_path: Path, what: str) -> None:
    with pytest.raises(RuntimeError, match="kernelcast grafana chart --output DIR"):
        rendered(helm, tmp_path, {what: {"enabled": True}})


@pytest.mark.parametrize(
    "values",
    [
        {"bridge": {"replica": 3}},
        {"bridge": {"replicas": 0}},
        {"monitor": "both"},
        {"image": {"digest": "latest"}},
        {"kafka": {"properties": {"sasl.password": "secret"}}},
        {"kafka": {"bootstrapServers": "kafka"}},
        {"web": {"tls": True}},
        {"exporter": {"settings": {"kafka": {}}}},
    ],
)
def test_the_schema_refuses_values_that_would_not_work(helm: str, tmp_path: Path, values: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="values don't meet the specifications of the schema"):
        rendered(helm, tmp_path, values)


def test_no_secret_is_written_and_kafkas_users_come_from_secrets(helm: str, tmp_path: Path) -> None:
    documents = rendered(helm, tmp_path, {**SECURED, "monitor": "service"})
    assert not by_kind(documents, "Secret")
    pods = {
        name: one["spec"]["template"]["spec"]
        for kind in ("DaemonSet", "Deployment", "StatefulSet", "Job")
        for name, one in by_kind(documents, kind).items()
    }
    assert set(pods) == {f"kernelcast-{name}" for name in ("exporter", "bridge", "predictor", "topics")}
    for name, pod in pods.items():
        (container,) = pod["containers"]
        sources = {one["name"]: one["valueFrom"] for one in container["env"] if "valueFrom" in one}
        user = f"{name.removeprefix('kernelcast-')}-user"
        for key in ("username", "password"):
            variable = f"KERNELCAST_KAFKA__PROPERTIES__SASL_{key.upper()}"
            assert sources[variable] == {"secretKeyRef": {"name": user, "key": key}}


def test_budgets_probes_and_the_test_know_readiness(helm: str, tmp_path: Path) -> None:
    documents = rendered(helm, tmp_path, {})
    assert set(by_kind(documents, "PodDisruptionBudget")) == {"kernelcast-bridge", "kernelcast-predictor"}
    for deployment in by_kind(documents, "Deployment").values():
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["readinessProbe"]["httpGet"]["path"] == "/-/ready"
        assert container["livenessProbe"]["httpGet"]["path"] == "/-/healthy"
    tests = by_kind(documents, "Pod")
    assert set(tests) == {"kernelcast-test-bridge", "kernelcast-test-predictor"}
    assert all(one["metadata"]["annotations"]["helm.sh/hook"] == "test" for one in tests.values())


def test_each_predictor_has_a_name_that_it_keeps(helm: str, tmp_path: Path) -> None:
    """Scores and findings are saved under it."""
    name = "kernelcast-predictor"
    one, several = (rendered(helm, tmp_path, {"predictor": {"replicas": count}}) for count in (1, 3))
    assert by_kind(one, "Deployment")[name]["spec"]["template"]["spec"]["hostname"] == name
    assert not by_kind(one, "StatefulSet")
    assert name not in by_kind(several, "Deployment")
    found = by_kind(several, "StatefulSet")[name]["spec"]
    assert "hostname" not in found["template"]["spec"], "that of its pod is its name"
    assert (found["replicas"], found["serviceName"]) == (3, name)
    assert found["serviceName"] in by_kind(several, "Service")
    before = by_kind(one, "Deployment")[name]["spec"]
    assert found["selector"] == before["selector"]
    assert found["template"]["spec"]["containers"] == before["template"]["spec"]["containers"]


def test_where_the_web_server_asks_for_a_user_the_probe_logs_in(helm: str, tmp_path: Path) -> None:
    (container,) = by_kind(rendered(helm, tmp_path, SECURED), "Deployment")["kernelcast-bridge"]["spec"]["template"][
        "spec"
    ]["containers"]
    command = container["readinessProbe"]["exec"]["command"][-1]
    assert "kernelcast health https://127.0.0.1:19401/-/ready" in command
    assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {"/etc/kernelcast-web-user"}
    nested = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert not [path for path in nested if any(path.startswith(f"{other}/") for other in nested)], (
        "no folder can be made below a read-only volume"
    )


def test_the_notes_say_what_to_do_next(helm: str, tmp_path: Path) -> None:
    chart = Path(shutil.copytree(manifests.CHART, tmp_path / "chart"))
    notes = (chart / "templates" / "NOTES.txt").read_text()
    shown = (
        f'{{{{- define "notes" -}}}}{notes}{{{{- end -}}}}\nkind: Notes\ntext: {{{{ include "notes" . | toJson }}}}\n'
    )
    (chart / "templates" / "notes.yaml").write_text(shown)
    (document,) = yaml.safe_load_all(manifests.template(helm, chart, "--show-only=templates/notes.yaml"))
    assert "helm test kernelcast -n kernelcast" in document["text"]
    assert "`kernelcast grafana chart --output DIR`" in document["text"]


def test_the_charts_version_is_the_packages() -> None:
    with (manifests.ROOT / "pyproject.toml").open("rb") as file:
        version = tomllib.load(file)["project"]["version"]
    chart = yaml.safe_load((manifests.CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
