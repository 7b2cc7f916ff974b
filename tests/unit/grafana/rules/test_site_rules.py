"""Sites differ: job names, services, thresholds and addresses are inputs of generation."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from kernelcast.grafana import alertmanager, output, prometheus, rules
from kernelcast.grafana.inputs import Jobs, Thresholds
from kernelcast.grafana.site import JobNames, Site, Targets, read
from kernelcast.wire.errors import ConfigurationError

WITHOUT_KAFKA = replace(rules.PRODUCTION, jobs=Jobs(bridge=None, predictor=None, exporter="gpu-nodes"))
OWN_NAMES = replace(rules.PRODUCTION, jobs=Jobs("monitoring/bridge", "oracle"))


def names(profile: rules.Profile) -> set[str]:
    return {alert.name for alert in rules.alerts(profile)}


@pytest.mark.slow
def test_a_site_without_kafka_has_no_alert_about_an_absent_service() -> None:
    files = rules.render(WITHOUT_KAFKA)
    text = "".join(files[name] for name in (rules.ALERTS_FILE, rules.CLASSIC_FILE))
    assert "absent(" not in text
    assert 'kernelcast-bridge"' not in text
    assert not {"KernelcastBridgeDown", "KernelcastPredictorDown", "KernelcastLagGrowing"} & names(WITHOUT_KAFKA)
    assert {"KernelcastGpuDown", "KernelcastKernelSlower", "KernelcastExporterStale", "Watchdog"} <= names(
        WITHOUT_KAFKA
    )


def test_a_site_without_a_predictor_keeps_the_bridge() -> None:
    profile = replace(rules.PRODUCTION, jobs=Jobs(predictor=None))
    assert "KernelcastBridgeDown" in names(profile)
    assert not {name for name in names(profile) if "Predict" in name or "Hint" in name or "Breach" in name}


def test_without_a_bridge_alerts_go_to_people_alone() -> None:
    document = yaml.safe_load(alertmanager.render("", WITHOUT_KAFKA))
    assert "webhook_configs" not in str(document)
    assert document["route"]["receiver"] == "warning"
    sources = {rule["source_matchers"][0] for rule in document["inhibit_rules"]}
    assert 'alertname="KernelcastBridgeDown"' not in sources


def test_job_names_are_those_of_the_site() -> None:
    rendered = rules.render(OWN_NAMES)[rules.ALERTS_FILE]
    assert 'up{job="monitoring/bridge"} == 0' in rendered
    assert 'up{job="oracle"} == 0' in rendered
    site = Site(jobs=JobNames(bridge="b", exporter="e", dcgm_exporter="d"), dcgm_exporter=Targets(("h:9400",)))
    jobs = {job["job_name"]: job for job in yaml.safe_load(prometheus.render(site))["scrape_configs"]}
    assert list(jobs) == ["b", "e", "kernelcast-predictor", "d"]
    assert jobs["b"]["honor_labels"]
    (relabelled,) = jobs["d"]["metric_relabel_configs"]
    assert "action" not in relabelled, "its device metrics are the only ones; none is dropped"
    assert (relabelled["source_labels"], relabelled["target_label"]) == (["hostname"], "Hostname")
    assert site.rules_profile.jobs == Jobs(bridge="b", exporter="e")


def test_thresholds_reach_expressions_and_texts() -> None:
    thresholds = Thresholds(kernel_slower_ratio=1.5, memory_used_ratio=0.8, clock_ahead_seconds=2.0)
    alerts = {alert.name: alert for alert in rules.alerts(replace(rules.PRODUCTION, thresholds=thresholds))}
    assert "> 1.5 and" in alerts["KernelcastKernelSlower"].expr
    assert "more than 50 %" in alerts["KernelcastKernelSlower"].description
    assert "> 0.8 and" in alerts["KernelcastGpuMemoryNearlyFull"].expr
    assert alerts["KernelcastClockAhead"].expr.endswith("> 2")


def test_pages_link_to_the_runbooks_of_the_site() -> None:
    site = Site(runbooks_url="https://wiki.example/kernelcast", dashboard_url="https://g.example/d/kernelcast-kernels")
    files = output.tree(site)
    assert "https://wiki.example/kernelcast#kernelcastgpudown" in files["dashboards/kernelcast-gpus.json"]
    assert "https://g.example/d/kernelcast-gpus?" in files[f"rules/{rules.ALERTS_FILE}"]


def test_a_service_without_a_target_and_thresholds_are_read_from_the_file_of_a_site(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(
        "bridge: {targets: []}\npredictor: {targets: []}\nthresholds: {idle_hours: 4}\njobs: {exporter: gpu-nodes}\n"
    )
    site = read(path)
    assert site.rules_profile.jobs == Jobs(bridge=None, predictor=None, exporter="gpu-nodes")
    assert site.rules_profile.thresholds == Thresholds(idle_hours=4.0)
    (job,) = yaml.safe_load(prometheus.render(site))["scrape_configs"]
    assert job["job_name"] == "gpu-nodes"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("thresholds: {idle_hours: long}", "thresholds.idle_hours must be a number"),
        ("thresholds: {idle: 3}", "thresholds.idle is not a setting; known are "),
        ("jobs: {bridge: 3}", "jobs.bridge must be text"),
        ("thresholds: {heat_ratio: .nan}", "thresholds.heat_ratio is nan; it must be a finite number"),
        ("thresholds: {lag_messages: .inf}", "thresholds.lag_messages is inf; it must be a finite number"),
        ("thresholds: {idle_hours: 0}", "thresholds.idle_hours is 0; it must be from 0.1 to 720"),
    ],
)
def test_a_wrong_threshold_is_named_with_its_path(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        read(path)


def test_a_sites_prices_are_multiplied_with_its_gpu_hours(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text("prices: {NVIDIA H100 80GB HBM3: 2.5, NVIDIA L4: 1}\n")
    text = rules.render(read(path).rules_profile)[rules.CLASSIC_FILE]
    (price,) = (line for line in text.splitlines() if 'modelName="NVIDIA L4"' in line and "expr" in line)
    assert '2.5 * group by (Hostname, UUID) (DCGM_FI_DEV_FB_USED{modelName="NVIDIA H100 80GB HBM3"})' in price
    assert '1 * group by (Hostname, UUID) (DCGM_FI_DEV_FB_USED{modelName="NVIDIA L4"})' in price


@pytest.mark.parametrize(
    ("prices", "problem"),
    [
        ("{H100: -1}", "prices has -1"),
        ("{H100: .inf}", "prices has inf"),
        ("{'a\"b': 1}", "a model cannot have"),
        ("{H100: much}", "prices must be a mapping of models to numbers"),
    ],
)
def test_a_price_that_cannot_be_is_named(prices: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(f"prices: {prices}\n")
    with pytest.raises(ConfigurationError, match=problem):
        read(path)
