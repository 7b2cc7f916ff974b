"""Configurations for Prometheus, Alertmanager and Grafana, as their own tools and users see them."""

from pathlib import Path

import yaml
from tests.service.require import binary
from tests.unit.grafana.queries import run

from kernelcast.grafana import alertmanager, prometheus, provisioning, rules
from kernelcast.wire.catalogue import CATALOGUE

WEBHOOK = "http://127.0.0.1:5555/api/v1/alerts"


def test_amtool_accepts_the_configuration(tmp_path: Path) -> None:
    for profile in rules.PROFILES.values():
        path = tmp_path / f"{profile.name}.yaml"
        path.write_text(alertmanager.render(WEBHOOK, profile))
        run(binary("amtool", "prometheus-alertmanager"), "check-config", path)


def test_alerts_reach_the_bridge_with_their_end() -> None:
    document = yaml.safe_load(alertmanager.render(WEBHOOK))
    receivers = {receiver["name"]: receiver for receiver in document["receivers"]}
    (webhook,) = receivers[document["route"]["receiver"]]["webhook_configs"]
    assert webhook["url"] == WEBHOOK
    assert webhook["send_resolved"] is True


def test_the_heartbeat_goes_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "alertmanager.yaml"
    path.write_text(alertmanager.render())
    amtool = binary("amtool", "prometheus-alertmanager")
    routed = run(amtool, "config", "routes", "test", f"--config.file={path}", "alertname=Watchdog", "severity=none")
    assert routed.strip() == "heartbeat"
    routed = run(amtool, "config", "routes", "test", f"--config.file={path}", "alertname=KernelcastDeadLetters")
    assert routed.strip() == "kernelcast"


def test_inhibitions_name_alerts_that_exist() -> None:
    names = {alert.name for alert in rules.alerts(rules.PRODUCTION)}
    for rule in yaml.safe_load(alertmanager.render())["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            label, _, value = matcher.partition("=")
            if label == "alertname" and not value.startswith("~"):
                assert value.strip('"') in names


def test_promtool_accepts_the_scrape_configuration(tmp_path: Path) -> None:
    for name, text in rules.render(rules.PRODUCTION).items():
        (tmp_path / name).write_text(text)
    files = [str(tmp_path / rules.CLASSIC_FILE), str(tmp_path / rules.ALERTS_FILE)]
    daemons = prometheus.Daemons(exporters=["h:19400"], predictors=["h:19402"])
    path = tmp_path / "prometheus.yaml"
    path.write_text(prometheus.render(["h:19401"], files, "h:9093", 1, daemons))
    assert "2 rule files found" in run(binary("promtool", "prometheus"), "check", "config", path)


def test_series_from_the_bridge_keep_who_measured_them() -> None:
    document = yaml.safe_load(prometheus.render(["a:1", "b:2"], [], None))
    (bridge,) = document["scrape_configs"]
    assert bridge["honor_labels"] is True
    assert bridge["static_configs"] == [{"targets": ["a:1", "b:2"]}]
    assert "alerting" not in document


def test_what_travels_through_kafka_is_not_counted_twice() -> None:
    """An exporter's own page has its node's kernels too; with the bridge beside it they must be dropped there."""
    import re

    document = yaml.safe_load(prometheus.render(["b:1"], [], None, daemons=prometheus.Daemons(exporters=["e:1"])))
    (relabel,) = document["scrape_configs"][1]["metric_relabel_configs"]
    assert relabel["action"] == "drop"
    for row in CATALOGUE:
        if row.exposed:
            dropped = bool(re.fullmatch(relabel["regex"], row.prometheus_name))
            assert dropped == bool(row.otlp_name), row.prometheus_name


def test_grafana_finds_prometheus_and_the_dashboards() -> None:
    files = provisioning.render("http://prometheus:9090", "/dashboards")
    (datasource,) = yaml.safe_load(files[provisioning.DATASOURCES_FILE])["datasources"]
    (provider,) = yaml.safe_load(files[provisioning.PROVIDERS_FILE])["providers"]
    assert datasource["type"] == "prometheus"
    assert datasource["url"] == "http://prometheus:9090"
    assert datasource["jsonData"]["timeInterval"] == "15s"
    assert provider["options"]["path"] == "/dashboards"
    assert provider["allowUiUpdates"] is False
