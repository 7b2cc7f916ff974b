"""The revision of a checkout on a machine without git."""

from pathlib import Path

import pytest

from kernelcast.cli import revision


def checkout(folder: Path) -> Path:
    """The folder of `kernelcast.cli` in a checkout."""
    (folder / ".git").mkdir()
    package = folder / "core" / "kernelcast" / "cli"
    package.mkdir(parents=True)
    return package


def test_without_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert revision.commit(checkout(tmp_path)) == ""
