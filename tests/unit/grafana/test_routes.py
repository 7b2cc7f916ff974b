"""The ways of dashboards, rules and scrape targets into Grafana, Prometheus and a cluster."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from kernelcast.grafana import dashboards, rules
from kernelcast.grafana.command import grafana, rules_application, scrape
from kernelcast.grafana.routes.push import contains, folder_uid
from kernelcast.grafana.rules.recording import BRIDGE_JOB, EXPORTER_JOB, PREDICTOR_JOB

SECURED = """
bridge: {targets: [b:19401], access: {scheme: https}}
predictor: {targets: []}
kubernetes: {namespace: gpu, labels: {release: prom}, tls_secret: authority, user_secret: scraper}
"""


def call(application: Any, *arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(application, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def documents(directory: Path) -> dict[str, Any]:
    return {path.name: yaml.safe_load(path.read_text()) for path in directory.iterdir()}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    path = tmp_path / "site.yaml"
    path.write_text(SECURED)
    return path


def test_the_readmes_command_prints_a_configuration_for_this_machine() -> None:
    code, said = call(grafana, "prometheus-config")
    document = yaml.safe_load(said)
    assert code == 0
    assert {job["job_name"]: job["static_configs"][0]["targets"] for job in document["scrape_configs"]} == {
        BRIDGE_JOB: ["localhost:19401"],
        EXPORTER_JOB: ["localhost:19400"],
        PREDICTOR_JOB: ["localhost:19402"],
    }
    assert document["rule_files"] == ["rules/recording.yaml", "rules/alerts.yaml"]
    assert document["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] == ["localhost:9093"]


def test_tls_and_a_user_are_options_of_both_configurations() -> None:
    access = ("--ca-file", "/ca.pem", "--username", "u", "--password-file", "/password")
    expected = {
        "tls_config": {"ca_file": "/ca.pem"},
        "basic_auth": {"username": "u", "password_file": "/password"},
    }
    code, said = call(grafana, "prometheus-config", "--bridge", "b:1", *access)
    (job,) = yaml.safe_load(said)["scrape_configs"]
    assert code == 0
    assert job["scheme"] == "https"
    assert job.items() >= expected.items()

    code, said = call(grafana, "alertmanager-config", "--webhook-url", "https://b:1/api/v1/alerts", *access)
    (webhook,) = yaml.safe_load(said)["receivers"][0]["webhook_configs"]
    assert (code, webhook["http_config"]) == (0, expected)


def test_the_sites_bridge_is_scraped_and_notified_as_its_file_says(site: Path) -> None:
    jobs = yaml.safe_load(call(grafana, "prometheus-config", "--site", site)[1])["scrape_configs"]
    assert [(job["job_name"], job.get("scheme", "http")) for job in jobs] == [
        (BRIDGE_JOB, "https"),
        (EXPORTER_JOB, "http"),
    ]
    receivers = yaml.safe_load(call(grafana, "alertmanager-config", "--site", site)[1])["receivers"]
    assert receivers[0]["webhook_configs"][0]["url"] == "https://b:19401/api/v1/alerts"


def test_options_that_contradict_each_other_are_one_line_and_a_usage_error() -> None:
    code, said = call(grafana, "prometheus-config", "--username", "u")
    assert code == 2
    assert "username and password_file belong together" in said
    assert said.count("\n") == 1


def test_without_a_bridge_the_exporters_own_page_is_kept_whole(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("bridge: {targets: []}\npredictor: {targets: []}\n")
    (job,) = yaml.safe_load(call(grafana, "prometheus-config", "--site", path)[1])["scrape_configs"]
    assert job["job_name"] == EXPORTER_JOB
    assert job["honor_labels"] is True
    assert "metric_relabel_configs" not in job


@pytest.mark.slow
def test_plain_files_are_all_files_of_this_version_and_provisioning_is_what_grafana_reads(tmp_path: Path) -> None:
    assert call(grafana, "files", "--output", tmp_path / "plain")[0] == 0
    plain = {str(path.relative_to(tmp_path / "plain")) for path in (tmp_path / "plain").rglob("*") if path.is_file()}
    assert {"README.md", "runbooks.md", f"rules/{rules.ALERTS_FILE}", "alertmanager/kernelcast.tmpl"} <= plain
    assert not {name for name in plain if "test" in name or ".lint" in name}, "those are for a checkout"
    readme = (tmp_path / "plain" / "README.md").read_text()
    assert not re.findall(r"python -m|make |tests?/|docs/|kernelcast/grafana|\w+\.py\b|checkout|wheel", readme)
    named = re.findall(r"`((?:rules|prometheus|alertmanager|dashboards|provisioning)/[\w./*-]*)`", readme)
    assert {name.partition("/")[0] for name in named} == {name.partition("/")[0] for name in plain if "/" in name}
    assert all(any((tmp_path / "plain").glob(name)) for name in named)

    target = tmp_path / "provisioning"
    assert call(grafana, "files", "--flavor", "provisioning", "--output", target)[0] == 0
    found = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    assert found == {
        "provisioning/datasources/kernelcast.yaml",
        "provisioning/dashboards/kernelcast.yaml",
        *(f"dashboards/{name}" for name in dashboards.render()),
    }


def test_plain_files_of_a_site_name_its_bridge(tmp_path: Path) -> None:
    """`--site` was ignored: people.yaml sent alerts to a bridge on localhost."""
    site = tmp_path / "site.yaml"
    access = "access: {scheme: https, ca_file: /ca.pem}"
    site.write_text(
        f"bridge: {{targets: ['bridge-1:19401'], {access}}}\npredictor: {{targets: []}}\n"
        "prometheus: {url: 'http://mimir:9009'}\n"
    )
    assert call(grafana, "files", "--output", tmp_path, "--site", site)[0] == 0
    for name in ("alertmanager.yaml", "people.yaml"):
        made = yaml.safe_load((tmp_path / "alertmanager" / name).read_text())
        (bridge,) = (one["webhook_configs"] for one in made["receivers"] if one["name"] == "kernelcast")
        assert bridge[0]["url"] == "https://bridge-1:19401/api/v1/alerts"
        assert bridge[0]["http_config"]["tls_config"]["ca_file"] == "/ca.pem"
    assert "bridge-1:19401" in (tmp_path / "prometheus" / "prometheus.yaml").read_text()
    assert "url: http://mimir:9009" in (tmp_path / "provisioning" / "datasources" / "kernelcast.yaml").read_text()
    assert "KernelcastPredictorDown" not in (tmp_path / "rules" / rules.ALERTS_FILE).read_text()


def test_written_again_files_keep_the_addresses_of_receivers_and_name_what_they_replace(tmp_path: Path) -> None:
    assert call(grafana, "files", "--output", tmp_path)[0] == 0
    receivers, alerts = tmp_path / "alertmanager" / "alertmanager.yaml", tmp_path / "rules" / rules.ALERTS_FILE
    example = tmp_path / "alertmanager" / "people.yaml"
    filled = receivers.read_text().replace(
        "- name: critical\n", "- name: critical\n  webhook_configs:\n  - url: https://pager.example/key\n"
    )
    assert "pager.example" in filled
    receivers.write_text(filled)
    example.write_text(example.read_text().replace("#gpu-alarms", "#ours"))
    alerts.write_text(f"# a note of ours\n{alerts.read_text()}")
    site = tmp_path / "site.yaml"
    site.write_text("bridge: {targets: ['bridge-1:19401']}\n")

    code, said = call(grafana, "files", "--output", tmp_path, "--site", site)
    assert code == 0
    assert receivers.read_text() == filled
    assert "#ours" in example.read_text()
    renewed = yaml.safe_load(receivers.with_name("alertmanager.yaml.new").read_text())
    assert renewed["receivers"][0]["webhook_configs"][0]["url"] == "http://bridge-1:19401/api/v1/alerts"
    assert f"{receivers} has receivers of yours and was kept" in said
    assert f"{example} has receivers of yours and was kept" in said
    assert f"{alerts}: replaced" in said
    assert "a note of ours" not in alerts.read_text()

    assert "replaced" not in call(grafana, "files", "--output", tmp_path, "--site", site)[1]


def test_receivers_without_addresses_follow_the_site(tmp_path: Path) -> None:
    assert call(grafana, "files", "--output", tmp_path)[0] == 0
    site = tmp_path / "site.yaml"
    site.write_text("bridge: {targets: ['bridge-1:19401']}\n")
    assert call(grafana, "files", "--output", tmp_path, "--site", site)[0] == 0
    assert "bridge-1:19401" in (tmp_path / "alertmanager" / "alertmanager.yaml").read_text()
    assert not list(tmp_path.rglob("*.new"))


@pytest.mark.slow
def test_configmaps_hold_the_dashboards_for_grafanas_sidecar(tmp_path: Path, site: Path) -> None:
    target = tmp_path / "maps"
    assert call(grafana, "files", "--flavor", "configmap", "--output", target, "--site", site)[0] == 0
    made: dict[str, str] = {}
    for document in documents(target).values():
        assert document["metadata"]["namespace"] == "gpu"
        assert document["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert document["metadata"]["annotations"] == {"grafana_folder": "kernelcast"}
        assert sum(len(text.encode()) for text in document["data"].values()) < 1_000_000, "Kubernetes takes 1 MiB"
        made |= document["data"]
    assert {name: json.loads(text) for name, text in made.items()} == {
        name: json.loads(text) for name, text in dashboards.render().items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(("options", "recording"), [((), "recording.yaml"), (("--native",), "recording-native.yaml")])
def test_rules_of_one_dialect_for_prometheus_and_its_operator(
    tmp_path: Path, site: Path, options: tuple[str, ...], recording: str
) -> None:
    plain, operator = tmp_path / "plain", tmp_path / "operator"
    assert call(rules_application, "files", "--output", plain, *options)[0] == 0
    assert set(documents(plain)) == {recording, rules.ALERTS_FILE}
    flavor = ("--flavor", "prometheusrule", "--site", site)
    assert call(rules_application, "files", "--output", operator, *flavor, *options)[0] == 0
    assert call(rules_application, "files", "--output", plain, "--site", site, *options)[0] == 0
    found = {document["metadata"]["name"]: document for document in documents(operator).values()}
    for name, document in documents(plain).items():
        rule = found[f"kernelcast-{name.removesuffix('.yaml')}"]
        assert (rule["apiVersion"], rule["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
        assert rule["metadata"]["labels"]["release"] == "prom"
        assert rule["spec"]["groups"] == document["groups"]


@pytest.mark.parametrize(
    ("flavor", "kind", "endpoints"),
    [("servicemonitor", "ServiceMonitor", "endpoints"), ("podmonitor", "PodMonitor", "podMetricsEndpoints")],
)
def test_a_monitors_job_is_the_one_that_rules_name(
    tmp_path: Path, site: Path, flavor: str, kind: str, endpoints: str
) -> None:
    target = tmp_path / "monitors"
    assert call(scrape, "files", "--flavor", flavor, "--output", target, "--site", site)[0] == 0
    found = {document["metadata"]["name"]: document for document in documents(target).values()}
    assert set(found) == {BRIDGE_JOB, EXPORTER_JOB}, "this site has no predictor"
    for job, document in found.items():
        spec = document["spec"]
        assert document["kind"] == kind
        assert spec["selector"]["matchLabels"] == {spec["jobLabel"]: job}
        assert spec["namespaceSelector"] == {"matchNames": ["gpu"]}
        (endpoint,) = spec[endpoints]
        assert endpoint["tlsConfig"]["ca"]["secret"]["name"] == "authority"
        assert endpoint["basicAuth"]["password"] == {"name": "scraper", "key": "password"}
        (relabeling,) = endpoint["relabelings"]
        assert relabeling["action"] == "labeldrop"
        assert "pod" in relabeling["regex"].split("|"), "a GPU's series would get the pod of the bridge"
        assert endpoint.get("honorLabels", False) == (job == BRIDGE_JOB)
        assert ("metricRelabelings" in endpoint) == (job == EXPORTER_JOB)
        assert endpoint.get("scheme") == ("https" if job == BRIDGE_JOB else None)


def test_a_monitor_of_dcgm_exporter_gives_its_series_the_label_that_rules_read(tmp_path: Path) -> None:
    path, target = tmp_path / "site.yaml", tmp_path / "monitors"
    path.write_text("dcgm_exporter: {targets: [node-1:9400]}\n")
    assert call(scrape, "files", "--flavor", "servicemonitor", "--output", target, "--site", path)[0] == 0
    (monitor,) = (one for one in documents(target).values() if one["metadata"]["name"] == "dcgm-exporter")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["metricRelabelings"] == [{"sourceLabels": ["hostname"], "regex": "(.+)", "targetLabel": "Hostname"}]


def test_the_configuration_for_prometheus_is_a_file_as_well(tmp_path: Path) -> None:
    assert call(scrape, "files", "--output", tmp_path)[0] == 0
    assert (tmp_path / "prometheus.yaml").read_text() == call(grafana, "prometheus-config")[1]


def test_grafana_may_add_keys_but_nothing_may_be_missing_or_different() -> None:
    wanted = {"title": "a", "panels": [{"id": 1, "options": {"x": True}}]}
    assert contains({"title": "a", "version": 3, "panels": [{"id": 1, "options": {"x": True, "new": 1}}]}, wanted)
    assert not contains({"title": "a", "panels": [{"id": 1, "options": {}}]}, wanted)
    assert not contains({"title": "a", "panels": []}, wanted)
    assert not contains({"title": "a", "panels": [*wanted["panels"], {}]}, wanted)
    assert not contains({"title": "b", "panels": wanted["panels"]}, wanted)


@pytest.mark.parametrize(
    ("title", "uid"),
    [("kernelcast", "kernelcast-folder-kernelcast"), ("GPU / Köln " * 9, "kernelcast-folder-gpu---k-ln-gpu---k-ln")],
)
def test_a_folders_uid_is_one_that_grafana_takes(title: str, uid: str) -> None:
    assert folder_uid(title) == uid
    assert len(uid) <= 40
