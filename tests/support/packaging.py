"""Builds of the package, and the hook of the build, loaded as a module."""

import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
ROOTS: Final = ("core", "exporter", "bridge", "predictor", "grafana")
"""Folders of the checkout that each hold a part of the package."""
MACHINE_CODE_VARIABLE: Final = "KERNELCAST_MACHINE_CODE"
"""See `hatch_build.py`, which reads it."""


def load_build_hook() -> ModuleType:
    """Load `hatch_build.py`, which is no module on the path."""
    spec = importlib.util.spec_from_file_location("hatch_build_in_a_test", REPOSITORY / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build_package(folder: Path, environ: Mapping[str, str], *, target: str = "wheel") -> Path:
    """Build the checkout's wheel or source distribution into a new folder; its path."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, env=environ)
    (path,) = folder.iterdir()
    return path
