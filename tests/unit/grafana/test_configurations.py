"""Configurations for Prometheus, Alertmanager and Grafana, as their own tools and users see them."""

import re

import pytest
import yaml

from kernelcast.grafana import alertmanager, people, prometheus, provisioning, rules
from kernelcast.grafana.site import GrafanaServer, Prometheus, Site, Targets
from kernelcast.wire.catalogue import CATALOGUE

WEBHOOK = "http://127.0.0.1:5555/api/v1/alerts"


def test_alerts_reach_the_bridge_with_their_end() -> None:
    document = yaml.safe_load(alertmanager.render(WEBHOOK))
    receivers = {receiver["name"]: receiver for receiver in document["receivers"]}
    (webhook,) = receivers[document["route"]["receiver"]]["webhook_configs"]
    assert webhook["url"] == WEBHOOK
    assert webhook["send_resolved"] is True


def test_no_secret_is_in_the_example_for_people() -> None:
    text = people.render()
    document = yaml.safe_load(text)
    for key in ("smtp_auth_password", "routing_key", "api_url", "service_key", "bearer_token", "password"):
        assert f"{key}:" not in text
    kinds = {kind for receiver in document["receivers"] for kind in receiver if kind != "name"}
    assert kinds == {"webhook_configs", "pagerduty_configs", "slack_configs", "email_configs"}
    assert all(len(receiver) > 1 for receiver in document["receivers"]), "every receiver has an address"


def test_messages_for_people_say_what_to_do_and_where_to_look() -> None:
    for annotation in ("summary", "action", "dashboard_url", "runbook_url"):
        assert f".Annotations.{annotation}" in people.TEMPLATE
    receivers = yaml.safe_load(people.render())["receivers"]
    for receiver in receivers:
        for kind in ("pagerduty_configs", "slack_configs", "email_configs"):
            for one in receiver.get(kind, ()):
                assert "kernelcast.text" in str(one), receiver["name"]
                assert "kernelcast.subject" in str(one), receiver["name"]


def test_severities_have_waits_of_their_own() -> None:
    routes = yaml.safe_load(alertmanager.render())["route"]["routes"]
    waits = {one["receiver"]: (one["group_wait"], one["repeat_interval"]) for one in routes if one.get("matchers")}
    assert len({waits[severity] for severity in ("critical", "warning", "info")}) == 3


@pytest.mark.parametrize("text", [alertmanager.render(), people.render()], ids=["alertmanager", "people"])
def test_no_message_is_repeated_later_than_alertmanager_remembers_it(text: str) -> None:
    """Alertmanager forgets after `--data.retention`, 120 h by default, and then repeats; it warns at its start."""
    repeated = re.findall(r"repeat_interval: (\w+)", text)
    assert repeated
    assert max(map(seconds, repeated)) < 120 * 3600


def test_the_first_lines_say_what_to_do_with_the_file_and_name_no_bridge_where_there_is_none() -> None:
    def heading(site: Site) -> str:
        return "".join(line for line in alertmanager.render(profile=site.rules_profile).splitlines() if line[0] == "#")

    with_bridge, without = heading(Site()), heading(Site(bridge=Targets()))
    for text in (with_bridge, without):
        for step in ("critical, warning, info and heartbeat", "amtool check-config", "--config.file", "grafana files"):
            assert step in text
    assert "bridge" in with_bridge
    assert "bridge" not in without


@pytest.mark.parametrize("profile", rules.PROFILES.values(), ids=lambda profile: profile.name)
def test_alerts_that_begin_or_end_an_evaluation_apart_share_a_message(profile: rules.Profile) -> None:
    """Kernels of one slow GPU cross their limits at different evaluations, and fall below them at different ones."""
    route = yaml.safe_load(alertmanager.render(profile=profile))["route"]
    people_routes = [one for one in route["routes"] if one["receiver"] in {"critical", "warning", "info"}]
    shortest = min(seconds(one["group_interval"]) for one in (route, *people_routes))
    assert shortest >= 5 * profile.evaluation_seconds
    assert seconds(route["group_wait"]) >= profile.evaluation_seconds * (2 if profile.shrink > 1 else 1)


@pytest.mark.parametrize("profile", rules.PROFILES.values(), ids=lambda profile: profile.name)
def test_a_heartbeat_is_sent_with_every_interval_of_its_group(profile: rules.Profile) -> None:
    """Alertmanager 0.25 sent every second one only, where a message may be repeated after that same interval."""
    routes = yaml.safe_load(alertmanager.render(profile=profile))["route"]["routes"]
    (route,) = (one for one in routes if one["receiver"] == "heartbeat")
    assert seconds(route["group_interval"]) == alertmanager.HEARTBEAT_SECONDS // profile.shrink
    assert 0 < seconds(route["repeat_interval"]) < seconds(route["group_interval"])


def seconds(text: str) -> int:
    return int(text[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[text[-1]]


def test_inhibitions_name_alerts_that_exist() -> None:
    names = {alert.name for alert in rules.alerts(rules.PRODUCTION)}
    for rule in yaml.safe_load(alertmanager.render())["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            label, _, value = matcher.partition("=")
            if label == "alertname" and not value.startswith("~"):
                assert value.strip('"') in names
            elif label == "alertname" and "+" not in value:
                assert set(value.lstrip("~").strip('"').split("|")) <= names


def test_series_from_the_bridge_keep_who_measured_them() -> None:
    alone = Site(bridge=Targets(("a:1", "b:2")), exporter=Targets(), predictor=Targets(), alertmanager=Targets())
    document = yaml.safe_load(prometheus.render(alone))
    (bridge,) = document["scrape_configs"]
    assert bridge["honor_labels"] is True
    assert bridge["static_configs"] == [{"targets": ["a:1", "b:2"]}]
    assert "alerting" not in document


def test_what_travels_through_kafka_is_not_counted_twice() -> None:
    """An exporter's own page has its node's kernels too; with the bridge beside it they must be dropped there."""
    document = yaml.safe_load(prometheus.render(Site()))
    (relabel,) = document["scrape_configs"][1]["metric_relabel_configs"]
    assert relabel["action"] == "drop"
    for row in CATALOGUE:
        if row.exposed:
            dropped = bool(re.fullmatch(relabel["regex"], row.prometheus_name))
            assert dropped == bool(row.otlp_name), row.prometheus_name


def test_grafana_finds_prometheus_and_the_dashboards() -> None:
    files = provisioning.render(
        Site(prometheus=Prometheus(url="http://prometheus:9090"), grafana=GrafanaServer(dashboards_path="/dashboards"))
    )
    (datasource,) = yaml.safe_load(files[provisioning.DATASOURCES_FILE])["datasources"]
    (provider,) = yaml.safe_load(files[provisioning.PROVIDERS_FILE])["providers"]
    assert datasource["type"] == "prometheus"
    assert datasource["url"] == "http://prometheus:9090"
    assert datasource["jsonData"]["timeInterval"] == "15s"
    assert provider["options"]["path"] == "/dashboards"
    assert provider["allowUiUpdates"] is False
