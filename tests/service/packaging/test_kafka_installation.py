"""Kafka's jars on a new machine, where all workers of a test run want them at once; nothing is fetched."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
from tests.service.kafka_installation import kafka_libraries

REPOSITORY: Final = Path(__file__).resolve().parents[3]
MAVEN: Final = """#!/bin/sh
for argument in "$@"; do case "$argument" in -DoutputDirectory=*) directory="${argument#*=}";; esac; done
echo fetched >> "$FETCHES"
mkdir -p "$directory"
sleep 0.3
[ -e "$directory/kafka.jar" ] && exit 0  # Maven does not overwrite, either
if [ -n "$FAILS" ]; then echo torn > "$directory/kafka.jar"; echo "no such registry"; exit 1; fi
echo jar > "$directory/kafka.jar"
"""
ASK: Final = "from tests.service.kafka_installation import kafka_libraries as asked; print(asked())"


@pytest.fixture
def fetches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a line for each run of Maven; a script replaces Maven."""
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text(MAVEN)
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", str(maven.parent), prepend=":")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FETCHES", str(tmp_path / "fetches"))
    monkeypatch.setenv("FAILS", "")
    return tmp_path / "fetches"


def test_of_processes_that_want_the_jars_at_once_one_fetches_them(fetches: Path) -> None:
    def ask(_: int) -> str:
        return subprocess.run(
            [sys.executable, "-c", ASK], cwd=REPOSITORY, capture_output=True, text=True, check=True
        ).stdout.strip()

    with ThreadPoolExecutor(3) as pool:
        directories = set(pool.map(ask, range(3)))
    (directory,) = directories
    assert (Path(directory) / "kafka.jar").read_text() == "jar\n"
    assert fetches.read_text().splitlines() == ["fetched"]


def test_after_a_fetch_that_failed_the_next_one_starts_from_nothing(
    fetches: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILS", "1")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no such registry"):
        kafka_libraries()
    monkeypatch.setenv("FAILS", "")
    assert (kafka_libraries() / "kafka.jar").read_text() == "jar\n"
    assert len(fetches.read_text().splitlines()) == 2
