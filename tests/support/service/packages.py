"""Packages of other projects as they are published, for tests with their own types; none needs a GPU.

They are large, so one process of the machine fetches each list once, into an environment of its own in a cache folder
outside every checkout. CI and the nightly run require them; elsewhere a test uses what the cache has, and else skips by
name. ::

    python -m tests.support.service.packages frameworks cupy cupti
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from tests.service.built import cache
from tests.service.require import REPOSITORY, in_ci, missing
from tests.support.once import locked


class Packages(NamedTuple):
    """A list of packages that are installed together.

    Attributes:
        name: The folder's name.
        requirements: Each with its version.
        size: What is fetched, for people.
        alone: Leave out what they depend on, unless it is listed: the interpreter that runs the tests has it.
    """

    name: str
    requirements: tuple[str, ...]
    size: str
    alone: bool = False

    @property
    def folder(self) -> Path:
        """The environment; another version of Python has its own packages in it."""
        return cache() / self.name

    @property
    def stamp(self) -> Path:
        """A file that says that exactly these packages are in the environment."""
        wanted = "\n".join((sys.implementation.cache_tag, *self.requirements))
        return self.folder / f"installed-{hashlib.sha256(wanted.encode()).hexdigest()[:12]}"


FRAMEWORKS: Final = Packages(
    "frameworks",
    (
        "torch==2.15.0",
        "lightning==2.6.6",
        "accelerate==1.15.0",
        "transformers==5.24.0",
        "safetensors==0.8.0",
        "jax[cpu]==0.10.2",
        "keras==3.15.1",
    ),
    "6 GB",
)
CUPY: Final = Packages("cupy", ("cupy-cuda13x==14.2.0", "cuda-pathfinder==1.9.1"), "70 MB", alone=True)
CUPTI: Final = Packages("cupti", ("nvidia-cuda-cupti==13.2.86",), "12 MB", alone=True)
TRACEML: Final = Packages(
    "traceml", ("traceml-ai==0.5.0", "msgspec==0.22.0", "nvidia-ml-py==13.615.71"), "3 MB", alone=True
)
"""For a benchmark; the rest is in `FRAMEWORKS`."""


def python_with(packages: Packages) -> Path:
    """The interpreter that has the packages, and nothing else; a skip without them, in CI a failure."""
    if not packages.stamp.exists():
        if not in_ci():
            fetch = f"python -m tests.support.service.packages {packages.name}"
            missing(packages.requirements[0], f"run `{fetch}`, which fetches {packages.size} once into {cache()}")
        if reason := install(packages):
            missing(packages.requirements[0], f"pip could not install it: {reason[-800:]}")
    return packages.folder / "bin" / "python"


def folder_with(packages: Packages) -> Path:
    """The folder that has the packages, for the `PYTHONPATH` of a child process; else as `python_with`."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return python_with(packages).parents[1] / "lib" / version / "site-packages"


def install(packages: Packages) -> str:
    """Install the packages, unless another process has done so; returns why that was not possible."""
    folder, stamp = packages.folder, packages.stamp
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        if stamp.exists():
            return ""
        for earlier in folder.glob("installed-*"):
            earlier.unlink()
        python = folder / "bin" / "python"
        options = ["--no-deps", "--only-binary", ":all:"] if packages.alone else []
        pip = [sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check"]
        for command in (
            [sys.executable, "-m", "venv", "--without-pip", str(folder)],
            [*pip, "install", *options, *packages.requirements],
        ):
            done = subprocess.run(command, env=_environ(), capture_output=True, text=True, check=False)
            if done.returncode:
                return done.stderr or f"{command[2]} ended with {done.returncode}"
        stamp.write_text("\n".join(packages.requirements), "utf-8")
    return ""


def environment(**more: str) -> dict[str, str]:
    """The variables of a program that runs with `FRAMEWORKS`, with the probe of this checkout on its path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KERNELCAST_", "PYTHON"))}
    paths = (REPOSITORY / "core", REPOSITORY / "exporter")
    return {**kept, "PYTHONPATH": os.pathsep.join(map(str, paths)), "KERNELCAST_TUNING_DIRECTORY": "off", **more}


def _environ() -> dict[str, str]:
    """The environment without `PYTHONPATH`: pip would take a checkout on it for an installed package."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


if __name__ == "__main__":
    failures = [install(packages) for packages in (FRAMEWORKS, CUPY, CUPTI, TRACEML) if packages.name in sys.argv[1:]]
    sys.exit("\n".join(filter(None, failures)) or 0)
