"""PyTorch and its trainers from the package index, in an environment of their own that tests share.

They take 6 GB and minutes, so a machine installs them once, below `~/.cache/kernelcast`. In CI and in the nightly run
they are required; elsewhere a test that needs them is skipped until `python -m tests.support.service.frameworks` has
run.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.service.require import REPOSITORY, in_ci, missing

PACKAGES: Final = (
    "torch==2.15.0",
    "lightning==2.6.6",
    "accelerate==1.15.0",
    "transformers==5.24.0",
    "safetensors==0.8.0",
    "jax[cpu]==0.10.2",
)
FOLDER: Final = Path.home() / ".cache" / "kernelcast" / "frameworks"


def framework_python() -> Path:
    """The interpreter that has `PACKAGES`; installs them in CI, else skips the test where they are not installed."""
    if not _is_complete() and in_ci():
        install()
    if not _is_complete():
        missing(
            "PyTorch with its trainers", "run `python -m tests.support.service.frameworks`, which fetches 6 GB once"
        )
    return FOLDER / "bin" / "python"


def install() -> None:
    """Install the packages, unless another process is at it or has done so."""
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with FOLDER.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_complete():
            subprocess.run([sys.executable, "-m", "venv", "--clear", FOLDER], check=True)
            subprocess.run([FOLDER / "bin" / "pip", "install", "--quiet", *PACKAGES], check=True)
            _stamp().write_text("\n".join(PACKAGES), "utf-8")


def environment(**more: str) -> dict[str, str]:
    """The variables of a program that runs there, with the probe of this checkout on its path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KERNELCAST_", "PYTHON"))}
    paths = (REPOSITORY / "core", REPOSITORY / "exporter")
    return {**kept, "PYTHONPATH": os.pathsep.join(map(str, paths)), "KERNELCAST_TUNING_DIRECTORY": "off", **more}


def _is_complete() -> bool:
    return _stamp().exists()


def _stamp() -> Path:
    """A file of the environment that says that exactly these packages are in it."""
    return FOLDER / f"installed-{hashlib.sha256(repr(PACKAGES).encode()).hexdigest()[:12]}"


if __name__ == "__main__":
    install()
