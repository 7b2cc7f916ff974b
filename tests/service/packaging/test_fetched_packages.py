"""Packages of other projects on a new machine, where all workers of a test run want them at once; no index is asked."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest
from tests.support.service.packages import Packages, folder_with

REPOSITORY: Final = Path(__file__).resolve().parents[3]
WANTED: Final = Packages("other", ("other-project==1.0",), "1 kB", alone=True)
ASK: Final = f"from tests.support.service.packages import *; print(folder_with({WANTED!r}))"


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that pip installs from, in CI."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def publish(folder: Path) -> None:
    described = "other_project-1.0.dist-info"
    with ZipFile(folder / "other_project-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("other_project.py", "")
        wheel.writestr(f"{described}/METADATA", "Metadata-Version: 2.1\nName: other-project\nVersion: 1.0\n")
        wheel.writestr(f"{described}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{described}/RECORD", "")


def test_of_processes_that_want_a_package_at_once_one_installs_it(wheels: Path, tmp_path: Path) -> None:
    publish(wheels)

    def ask(_: int) -> str:
        command = [sys.executable, "-c", ASK]
        return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()

    with ThreadPoolExecutor(3) as pool:
        (folder,) = set(pool.map(ask, range(3)))
    assert (Path(folder) / "other_project.py").exists()
    assert (tmp_path / "log").read_text().count("Successfully installed") == 1


def test_in_ci_a_package_that_cannot_be_had_fails_the_test_and_the_next_one_tries_again(wheels: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="No matching distribution"):
        folder_with(WANTED)
    publish(wheels)
    assert (folder_with(WANTED) / "other_project.py").exists()


def test_elsewhere_a_package_that_is_not_in_the_cache_skips_the_test_by_name(
    wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(wheels)
    monkeypatch.delenv("CI")
    monkeypatch.delenv("KERNELCAST_REQUIRE_SERVICES", raising=False)
    with pytest.raises(
        pytest.skip.Exception, match=r"other-project==1.0 is not on this machine; run `python -m .*packages other`"
    ):
        folder_with(WANTED)
