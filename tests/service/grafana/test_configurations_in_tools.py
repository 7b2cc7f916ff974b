"""promtool and amtool accept the generated configurations."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tests.service.require import binary
from tests.unit.grafana.queries import run

from kernelcast.grafana import alertmanager, people, prometheus, rules
from kernelcast.grafana.dashboards import fleet
from kernelcast.grafana.inputs import Jobs
from kernelcast.grafana.site import Prometheus, ServerAccess, Site, Targets

WEBHOOK = "http://127.0.0.1:5555/api/v1/alerts"


def test_amtool_accepts_the_configuration(tmp_path: Path) -> None:
    for profile in rules.PROFILES.values():
        path = tmp_path / f"{profile.name}.yaml"
        access = ServerAccess("https", "/etc/ca.pem", "alertmanager", "/etc/password")
        path.write_text(alertmanager.render(WEBHOOK, profile, access))
        checked = run(binary("amtool", "prometheus-alertmanager"), "check-config", path)
        assert "SUCCESS" in checked
        assert "FAILED" not in checked


def test_the_heartbeat_goes_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "alertmanager.yaml"
    path.write_text(alertmanager.render())
    amtool = binary("amtool", "prometheus-alertmanager")
    routed = run(amtool, "config", "routes", "test", f"--config.file={path}", "alertname=Watchdog", "severity=none")
    assert routed.strip() == "heartbeat"
    routed = run(amtool, "config", "routes", "test", f"--config.file={path}", "alertname=KernelcastDeadLetters")
    assert routed.strip() == "kernelcast"


ROUTES = [
    (("alertname=KernelcastGpuDown", "severity=critical"), "kernelcast,critical"),
    (("alertname=KernelcastGpuThrottling", "severity=warning"), "kernelcast,warning"),
    (("alertname=KernelcastGpuIdleAllocated", "severity=info"), "kernelcast,info"),
    (("alertname=Watchdog", "severity=none"), "heartbeat"),
]
OWNERS = [
    (("alertname=KernelcastGpuDown", "severity=critical", "namespace=vision"), "kernelcast,team-vision,critical"),
    (("alertname=KernelcastKernelSlower", "severity=warning", "program=speech-1"), "kernelcast,team-speech,warning"),
    (("alertname=KernelcastGpuIdleAllocated", "severity=info", "hpc_job=7"), "kernelcast,job-owner,info"),
]


@pytest.mark.parametrize(("labels", "receivers"), [*ROUTES, *OWNERS])
def test_an_alert_goes_to_the_receivers_of_its_severity_and_owner(
    labels: tuple[str, ...], receivers: str, tmp_path: Path
) -> None:
    (tmp_path / people.TEMPLATE_FILE).write_text(people.TEMPLATE)
    amtool = binary("amtool", "prometheus-alertmanager")
    files = {"people": people.render()} | ({"plain": alertmanager.render()} if (labels, receivers) in ROUTES else {})
    for name, text in files.items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(text)
        assert run(amtool, "config", "routes", "test", f"--config.file={path}", *labels).strip() == receivers


def test_amtool_accepts_the_example_for_people_and_a_site_without_kafka(tmp_path: Path) -> None:
    without_kafka = replace(rules.PRODUCTION, jobs=Jobs(bridge=None, predictor=None))
    (tmp_path / people.TEMPLATE_FILE).write_text(people.TEMPLATE)
    texts = (alertmanager.render("", without_kafka), people.render(WEBHOOK, without_kafka), people.render(WEBHOOK))
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        checked = run(binary("amtool", "prometheus-alertmanager"), "check-config", path)
        assert "SUCCESS" in checked
        assert "FAILED" not in checked


def test_promtool_accepts_the_scrape_configuration(tmp_path: Path) -> None:
    for name, text in rules.render(rules.PRODUCTION).items():
        (tmp_path / name).write_text(text)
    for name in ("ca.pem", "password"):
        (tmp_path / name).touch()
    access = ServerAccess("https", str(tmp_path / "ca.pem"), "prometheus", str(tmp_path / "password"))
    path = tmp_path / "prometheus.yaml"
    path.write_text(
        prometheus.render(Site(bridge=Targets(("h:1",), access), prometheus=Prometheus(rules_directory=str(tmp_path))))
    )
    assert "2 rule files found" in run(binary("promtool", "prometheus"), "check", "config", path)


def test_each_gpu_of_the_fleet_is_in_one_state(tmp_path: Path) -> None:
    """At work, idle, with clocks held back while at work and while idle, and without an answer but with last values."""
    loads, held, answers = (90, 0, 80, 0, 70), (0, 0, 32, 8, 32), (1, 1, 1, 1, 0)
    rows = (("DCGM_FI_DEV_GPU_UTIL", loads), ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", held), ("kernelcast_gpu_up", answers))
    series = [
        {"series": f'{name}{{Hostname="n", gpu="{number}"}}', "values": f"{value}x5"}
        for name, values in rows
        for number, value in enumerate(values)
    ]
    exprs = [re.sub(r'\w+=~"[^"]*\$[^"]*",? ?', "", one["expr"]) for one in fleet.states().panel.targets]
    checks = [
        {"expr": expr, "eval_time": "2m", "exp_samples": [{"labels": "{}", "value": value}]}
        for expr, value in zip(exprs, (1, 1, 2, 1), strict=True)
    ]
    path = tmp_path / "states.yaml"
    path.write_text(yaml.safe_dump({"tests": [{"input_series": series, "interval": "1m", "promql_expr_test": checks}]}))
    run(binary("promtool", "prometheus"), "test", "rules", path)
