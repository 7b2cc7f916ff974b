"""`kernelcast grafana` and `lab.grafana`: committed files equal the generated ones, and differences are listed."""

import re
from pathlib import Path

import pytest
import yaml
from lab.grafana import grafana as lab_grafana
from tests.unit.grafana.queries import GENERATED
from typer.testing import CliRunner

from kernelcast.grafana import output, rules
from kernelcast.grafana.addresses import GPUS
from kernelcast.grafana.command import grafana


def call(*arguments: str | Path) -> tuple[int, str]:
    application = lab_grafana if arguments[0] == "generate" else grafana
    result = CliRunner().invoke(application, [str(argument) for argument in arguments])
    return result.exit_code, result.output


TREE = output.tree()


@pytest.mark.parametrize("name", TREE)
def test_the_committed_file_equals_the_generated_one(name: str) -> None:
    assert (GENERATED / name).read_text() == TREE[name], "run: python -m lab.grafana generate"


@pytest.mark.slow
def test_generating_twice_gives_the_same_bytes() -> None:
    assert output.tree() == TREE


@pytest.mark.slow
def test_check_is_quiet_after_generate_and_names_the_file_that_was_changed(tmp_path: Path) -> None:
    assert call("generate", "--output", tmp_path)[0] == 0
    assert call("generate", "--output", tmp_path, "--check") == (0, "")
    changed = tmp_path / "rules" / rules.ALERTS_FILE
    changed.write_text(changed.read_text() + "# by hand\n")
    code, said = call("generate", "--output", tmp_path, "--check")
    assert code == 1
    assert str(changed) in said
    assert said.count("differs from the generated file") == 1
    assert changed.read_text().endswith("# by hand\n"), "--check writes nothing"


def test_check_names_a_file_that_is_no_text_and_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    call("generate", "--output", tmp_path)
    alerts, recordings = tmp_path / "rules" / "alerts.yaml", tmp_path / "rules" / "recording.yaml"
    alerts.write_bytes(b"\xff\xfe")
    recordings.unlink()
    recordings.mkdir()
    code, said = call("generate", "--output", tmp_path, "--check")
    assert code == 1
    assert [line.partition(" ")[0] for line in said.splitlines()] == [str(recordings), str(alerts)]


@pytest.mark.slow
def test_check_of_an_empty_directory_names_every_file(tmp_path: Path) -> None:
    code, said = call("generate", "--output", tmp_path, "--check")
    assert code == 1
    assert said.count("differs from the generated file") == len(TREE)


@pytest.mark.slow
def test_the_demo_profile_writes_shorter_rules(tmp_path: Path) -> None:
    call("generate", "--output", tmp_path, "--profile", "demo")
    groups = yaml.safe_load((tmp_path / "rules" / rules.ALERTS_FILE).read_text())["groups"]
    assert {group["interval"] for group in groups} == {"1s"}


def test_alerts_lead_to_the_grafana_and_the_runbooks_that_were_named(tmp_path: Path) -> None:
    links = ("--dashboard-url", "https://g/d/kernelcast-kernels", "--runbooks-url", "https://r")
    call("generate", "--output", tmp_path, *links)
    text = (tmp_path / "rules" / rules.ALERTS_FILE).read_text()
    assert "runbook_url: https://r#kernelcastkernelslower" in text
    assert "dashboard_url: https://g/d/kernelcast-gpus?{{ with $labels.Hostname }}var-hostname=" in text
    assert "localhost" not in text


def test_an_unknown_profile_is_a_usage_error(tmp_path: Path) -> None:
    code, said = call("generate", "--output", tmp_path, "--profile", "fast")
    assert code == 2
    assert "production, demo" in said


def test_options_are_judged_as_the_file_of_a_site_is() -> None:
    code, said = call("alertmanager-config", "--profile", "fast")
    assert (code, said) == (2, "kernelcast: profile is 'fast'; it must be one of production, demo\n")
    code, said = call("prometheus-config", "--bridge", "http://b:1")
    assert code == 2
    assert said.startswith("kernelcast: bridge.targets has 'http://b:1'")


@pytest.mark.parametrize("slug", ["", "/kernels", "/kernels?orgId=1"])
def test_alerts_lead_to_their_pages_from_an_address_as_the_browser_shows_it(slug: str, tmp_path: Path) -> None:
    address = f"https://grafana.example/sub/d/kernelcast-kernels{slug}"
    assert call("generate", "--output", tmp_path, "--dashboard-url", address)[0] == 0
    text = (tmp_path / "rules" / "alerts.yaml").read_text()
    pages = set(re.findall(r"dashboard_url: ([^?\n]+)", text))
    assert f"https://grafana.example/sub/d/{GPUS}" in pages
    assert all(page.startswith("https://grafana.example/sub/d/kernelcast-") for page in pages)
    assert all(page.count("/") == 5 for page in pages)


def test_prometheus_config_is_ready_to_run() -> None:
    arguments = ("--bridge", "h:1", "--bridge", "h:2", "--rules", "/rules", "--alertmanager", "h:3")
    code, said = call("prometheus-config", *arguments, "--scrape-interval", "1", "--predictor", "h:4")
    document = yaml.safe_load(said)
    assert code == 0
    assert document["rule_files"] == ["/rules/recording.yaml", "/rules/alerts.yaml"]
    assert document["global"]["scrape_interval"] == "1s"
    assert [job["job_name"] for job in document["scrape_configs"]] == ["kernelcast-bridge", "kernelcast-predictor"]


@pytest.mark.parametrize("daemon", ["exporter", "predictor"])
def test_the_page_of_a_daemon_that_is_named_alone_is_kept_whole_and_no_bridge_is_scraped(daemon: str) -> None:
    code, said = call("prometheus-config", f"--{daemon}", "node:1", "--alertmanager", "h:3")
    (job,) = yaml.safe_load(said)["scrape_configs"]
    assert (code, job["job_name"]) == (0, f"kernelcast-{daemon}")
    assert (job["honor_labels"], "metric_relabel_configs" in job) == (True, False)


def test_an_alertmanager_alone_changes_no_daemon() -> None:
    _, said = call("prometheus-config", "--alertmanager", "h:3")
    jobs = {job["job_name"] for job in yaml.safe_load(said)["scrape_configs"]}
    assert {"kernelcast-bridge", "kernelcast-exporter", "kernelcast-predictor"} <= jobs


def test_alertmanager_config_takes_the_webhook() -> None:
    code, said = call("alertmanager-config", "--webhook-url", "http://b:1/api/v1/alerts", "--profile", "demo")
    document = yaml.safe_load(said)
    assert code == 0
    assert document["receivers"][0]["webhook_configs"][0]["url"] == "http://b:1/api/v1/alerts"
    assert document["route"]["group_wait"] == "2s"


def test_an_output_that_cannot_be_written_is_one_line_and_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, said = call("generate", "--output", tmp_path / "file" / "below")
    assert code == 2
    assert said.startswith("kernelcast: ")
    assert said.count("\n") == 1
    assert "cannot be written" in said


@pytest.mark.parametrize("url", ["bridge:19401", "ftp://b/api", "http://", ""])
def test_a_webhook_that_alertmanager_would_refuse_is_refused_here(url: str) -> None:
    code, said = call("alertmanager-config", "--webhook-url", url)
    assert code == 2
    assert "--webhook-url" in said
