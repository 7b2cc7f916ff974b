"""The project's present revision, and the code of an earlier one for rolling upgrades."""

import fcntl
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[2]
ROOTS: Final = ("core", "exporter", "bridge", "predictor", "grafana")
PREVIOUS: Final = "b6320c9"
"""The revision that runs beside this one in schedules with a rolling upgrade: the last one that was handed over."""


def revision() -> str:
    """The commit, with "+" where files differ from it; "unknown" outside a clone."""
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() or "unknown"


def has_previous() -> bool:
    """Whether this clone's history has the previous revision."""
    command = ["git", "cat-file", "-e", f"{PREVIOUS}^{{commit}}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0


def previous_environment(*, compiled: bool) -> dict[str, str]:
    """The environment in which `python -m kernelcast.cli` runs the previous revision.

    Its code lies in the user's cache directory, with its entry points beside it, and is extracted once.

    Args:
        compiled: Whether its machine code is compiled, too; once, in two minutes of a core.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kernelcast" / f"revision-{PREVIOUS}"
    cache.mkdir(parents=True, exist_ok=True)
    environ = {"PYTHONPATH": os.pathsep.join(str(cache / root) for root in ROOTS)}
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (cache / "complete").exists():
            _extract(cache)
            (cache / "complete").touch()
        if compiled and not (cache / "compiled").exists():
            command = [sys.executable, "-m", "kernelcast.bridge.warm_up", "--all"]
            subprocess.run(command, env={**os.environ, **environ}, check=True, capture_output=True)
            (cache / "compiled").touch()
    return environ


def _extract(cache: Path) -> None:
    archive = ["git", "archive", PREVIOUS, *ROOTS, "pyproject.toml"]
    packed = subprocess.run(archive, cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "-x"], cwd=cache, input=packed.stdout, check=True)
    project = tomllib.loads((cache / "pyproject.toml").read_text())["project"]
    metadata = cache / "core" / f"{project['name']}-0+{PREVIOUS}.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0+{PREVIOUS}\n")
    points = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in named.items())
        for group, named in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(points))
