"""Packages of other projects as they are published, for tests of our adapters with their own types; none needs a GPU.

They are large, so one process of the machine fetches each list once, into a cache folder outside every checkout. CI
requires them; elsewhere a test uses what the cache has, and else skips by name.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pytest
from tests.service import require
from tests.service.built import cache
from tests.support.once import locked

CUPY: Final = ("cupy-cuda13x==14.2.0", "cuda-pathfinder==1.9.1")
CUPTI: Final = ("nvidia-cuda-cupti==13.2.86",)


def real_packages(*requirements: str) -> Path:
    """The folder with the packages, for the `PYTHONPATH` of a child process; a skip without them, in CI a failure.

        folder = real_packages("cupy-cuda13x==14.2.0", "cuda-pathfinder==1.9.1")

    Args:
        requirements: Each with its version, the one that gives the folder its name first. What they depend on is
            installed only if it is listed, too; the rest comes from the interpreter that runs the tests.
    """
    folder = _folder(requirements)
    if not folder.exists():
        if not require.in_ci():
            pytest.skip(f"{requirements[0]} is not in {folder}; run the test with CI=true to have it fetched")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            if not folder.exists():
                _install(requirements, folder)
    return folder


def _folder(requirements: tuple[str, ...]) -> Path:
    """A folder for this list and this version of Python, for which wheels are built."""
    listed = hashlib.sha256("\n".join(requirements).encode()).hexdigest()[:8]
    return cache() / "packages" / f"{requirements[0].replace('==', '-')}-{sys.implementation.cache_tag}-{listed}"


def _install(requirements: tuple[str, ...], folder: Path) -> None:
    """Install into another folder first, so that an interrupted run leaves nothing that looks whole."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
    with tempfile.TemporaryDirectory(dir=folder.parent) as directory:
        target = Path(directory) / folder.name
        command = [*pip, "--no-deps", "--only-binary", ":all:", "--target", str(target), *requirements]
        done = subprocess.run(command, env=_environ(), capture_output=True, text=True, check=False)
        if done.returncode:
            require.missing(requirements[0], f"pip could not install it: {done.stderr[-800:]}")
        shutil.move(target, folder)


def _environ() -> dict[str, str]:
    """The environment without `PYTHONPATH`: pip would take a checkout on it for an installed package."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
