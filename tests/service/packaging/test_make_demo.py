"""The commands of `make demo` in a fresh clone."""

import hashlib
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

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


def locked_installs(environment: Path) -> Iterator[list[str]]:
    """Options of each pip command that installs a lock, without the lock's name."""
    for line in planned("install", environment).splitlines():
        if "--require-hashes" in line:
            words = shlex.split(line)
            yield [word for word in words[words.index("install") + 1 :] if word != "-r" and not word.endswith(".lock")]


def make_wheel(folder: Path, name: str, version: str, *metadata: str) -> str:
    """Write an empty package's wheel; its SHA-256."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    described = ("Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *metadata)
    built = ("Wheel-Version: 1.0", "Generator: test", "Root-Is-Purelib: true", "Tag: py3-none-any")
    with ZipFile(path, "w") as wheel:
        for file, lines in {"METADATA": described, "WHEEL": built, "RECORD": ()}.items():
            wheel.writestr(f"{info}/{file}", "".join(f"{line}\n" for line in lines))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_lock_installs_when_a_newer_release_of_a_package_with_an_extra_is_out(tmp_path: Path) -> None:
    """pip up to 23.3 chose the newest `coverage` for `coverage[toml]` and refused it, as the lock has an older one."""
    coverage = make_wheel(tmp_path, "coverage", "1.0", "Provides-Extra: toml")
    make_wheel(tmp_path, "coverage", "2.0", "Provides-Extra: toml")
    plugin = make_wheel(tmp_path, "plugin", "1.0", "Requires-Dist: coverage[toml]>=1.0")
    lock = tmp_path / "requirements.txt"
    lock.write_text(f"coverage==1.0 --hash=sha256:{coverage}\nplugin==1.0 --hash=sha256:{plugin}\n")
    installs = list(locked_installs(tmp_path / "venv"))
    assert len(installs) == 2
    for options in installs:
        index = ("--no-index", "--find-links", str(tmp_path), "--target", str(tmp_path / "made"), "--dry-run")
        command = (sys.executable, "-m", "pip", "install", *options, *index, "-r", str(lock))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "Would install coverage-1.0 plugin-1.0" in done.stdout, done.stderr
