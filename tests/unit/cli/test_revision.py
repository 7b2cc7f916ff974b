"""The commit that `kernelcast --version` shows."""

import subprocess
from pathlib import Path

import pytest

from kernelcast.cli import revision


@pytest.fixture
def git(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Answers of git by its sub-command."""
    answers = {"rev-parse": "b6320c9a1b2c\n", "status": ""}

    def run(command: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        answer = answers.get(command[3])
        return subprocess.CompletedProcess(command, 128 if answer is None else 0, answer or "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return answers


def checkout(folder: Path) -> Path:
    """The folder of `kernelcast.cli` in a checkout."""
    (folder / ".git").mkdir()
    package = folder / "core" / "kernelcast" / "cli"
    package.mkdir(parents=True)
    return package


def test_a_checkout_has_the_commit_that_git_names(tmp_path: Path, git: dict[str, str]) -> None:
    package = checkout(tmp_path)
    assert revision.commit(package) == "b6320c9a1b2c"
    git["status"] = " M README.md\n"
    assert revision.commit(package) == "b6320c9a1b2c with changes"
    git.clear()
    assert revision.commit(package) == ""


def test_an_installation_has_the_commit_of_its_build(tmp_path: Path, git: dict[str, str]) -> None:
    git["rev-parse"] = "000000000000\n"
    package = checkout(tmp_path)
    (package / revision.COMMIT_FILE).write_text("b6320c9a1b2c\n")
    assert revision.commit(package) == "b6320c9a1b2c"


def test_the_commit_of_a_checkout_around_it_is_not_taken(tmp_path: Path, git: dict[str, str]) -> None:
    assert git["rev-parse"]
    (tmp_path / ".git").mkdir()
    assert revision.commit_of_checkout(tmp_path / "unpacked") == ""
