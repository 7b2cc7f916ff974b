"""Grafana's own linter accepts every dashboard, strictly, but for the exclusions that have a reason."""

import subprocess
from pathlib import Path

import pytest
from tests.service.built import DASHBOARD_LINTER

DASHBOARDS = Path(__file__).resolve().parents[3] / "grafana" / "dashboards"


def lint(path: Path, config: Path) -> "subprocess.CompletedProcess[str]":
    command: list[str | Path] = [DASHBOARD_LINTER.found(), "lint", "--strict", "--config", config, path]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("path", sorted(DASHBOARDS.glob("*.json")), ids=lambda path: path.stem)
def test_the_linter_accepts_the_dashboard(path: Path) -> None:
    done = lint(path, DASHBOARDS / ".lint")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_query_without_its_data_source_is_found(tmp_path: Path) -> None:
    text = (DASHBOARDS / "kernelcast-overview.json").read_text()
    broken = tmp_path / "broken.json"
    broken.write_text(text.replace("${datasource}", "prometheus"))
    done = lint(broken, DASHBOARDS / ".lint")
    assert done.returncode == 1
    assert "does not use a templated datasource" in done.stdout


@pytest.mark.parametrize("rule", ["template-job-rule", "panel-units-rule", "target-promql-rule"])
def test_an_exclusion_is_still_needed(rule: str, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text((DASHBOARDS / ".lint").read_text().replace(f"{rule}:", "unknown-rule:"))
    assert any(lint(path, config).returncode for path in DASHBOARDS.glob("*.json"))
