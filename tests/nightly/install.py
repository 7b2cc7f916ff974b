"""Installs the built wheel with all extras and runs it: `python -m tests.nightly.install`.

The environment is new, has the locked dependencies, and runs in an empty directory, so nothing of the checkout is
found. The demo on the embedded broker must end well, with launches counted and a hint applied.
"""

import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
HANGS_SECONDS: Final = 1200
"""The wheel for this machine has no machine code: its first start compiles, a minute of a quiet core."""
HIDDEN: Final = ("PYTHONPATH", "VIRTUAL_ENV")


def main() -> int:
    """Build, install, run.

    Returns:
        The exit code: 1 if the demo did not keep a promise.
    """
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        _checked(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder))
        (wheel,) = folder.glob("*.whl")
        venv.create(folder / "environment", with_pip=True, symlinks=True)
        binaries = folder / "environment" / "bin"
        pip = (str(binaries / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        _checked(*pip, "--no-deps", "--require-hashes", "--requirement", str(REPOSITORY / "requirements.lock"))
        _checked(*pip, "--no-index", f"{wheel}[all]")
        return _run(binaries / "kernelcast", folder)


def _run(command: Path, folder: Path) -> int:
    empty, summary = folder / "empty", folder / "summary.json"
    empty.mkdir()
    arguments = ("demo", "--source", "simulate", "--duration", "25", "--no-servers", "--summary", str(summary))
    environ = {name: value for name, value in os.environ.items() if name not in HIDDEN}
    done = subprocess.run((str(command), *arguments), cwd=empty, env=environ, timeout=HANGS_SECONDS, check=False)
    result = json.loads(summary.read_text()) if summary.exists() else {}
    launches = result.get("kernels", {}).get("launches", 0)
    states = [outcome["state"] for outcome in result.get("outcomes", ())]
    sys.stdout.write(f"the demo ended with {done.returncode}: {launches} launches, outcomes {states}\n")
    return 0 if done.returncode == 0 and launches > 0 and "applied" in states else 1


def _checked(*command: str) -> None:
    subprocess.run(command, cwd=REPOSITORY, check=True)


if __name__ == "__main__":
    sys.exit(main())
