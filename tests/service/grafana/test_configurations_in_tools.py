"""promtool and amtool accept the generated configurations."""

from pathlib import Path

from tests.service.require import binary
from tests.unit.grafana.queries import run

from kernelcast.grafana import alertmanager, prometheus, rules

WEBHOOK = "http://127.0.0.1:5555/api/v1/alerts"


def test_amtool_accepts_the_configuration(tmp_path: Path) -> None:
    for profile in rules.PROFILES.values():
        path = tmp_path / f"{profile.name}.yaml"
        path.write_text(alertmanager.render(WEBHOOK, profile))
        run(binary("amtool", "prometheus-alertmanager"), "check-config", path)


def test_the_heartbeat_goes_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "alertmanager.yaml"
    path.write_text(alertmanager.render())
    amtool = binary("amtool", "prometheus-alertmanager")
    routed = run(amtool, "config", "routes", "test", f"--config.file={path}", "alertname=Watchdog", "severity=none")
    assert routed.strip() == "heartbeat"
    routed = run(amtool, "config", "routes", "test", f"--config.file={path}", "alertname=KernelcastDeadLetters")
    assert routed.strip() == "kernelcast"


def test_promtool_accepts_the_scrape_configuration(tmp_path: Path) -> None:
    for name, text in rules.render(rules.PRODUCTION).items():
        (tmp_path / name).write_text(text)
    files = [str(tmp_path / rules.CLASSIC_FILE), str(tmp_path / rules.ALERTS_FILE)]
    daemons = prometheus.Daemons(exporters=["h:19400"], predictors=["h:19402"])
    path = tmp_path / "prometheus.yaml"
    path.write_text(prometheus.render(["h:19401"], files, "h:9093", 1, daemons))
    assert "2 rule files found" in run(binary("promtool", "prometheus"), "check", "config", path)
