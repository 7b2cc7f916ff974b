"""The commands of `make demo` in a fresh clone."""

import subprocess
from pathlib import Path

import pytest
from tests.support.packaging import REPOSITORY

pytestmark = pytest.mark.service


def planned(target: str, environment: Path) -> str:
    """Commands that a target would run with a fresh environment."""
    command = ["make", "--dry-run", "--no-print-directory", "-C", str(REPOSITORY), target, f"VENV={environment}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_demo_installs_what_runs_and_developers_install_all(tmp_path: Path) -> None:
    demo = planned("demo", tmp_path / "venv")
    assert "requirements-run.lock" in demo
    assert "requirements.lock" not in demo
    test = planned("test", tmp_path / "venv")
    assert test.index("requirements-run.lock") < test.index("requirements.lock")


def test_the_demo_uses_a_developers_environment_as_it_is(tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    environment.mkdir()
    for stamp in (".runs", ".installed"):
        (environment / stamp).touch()
    assert "pip" not in planned("demo", environment)
