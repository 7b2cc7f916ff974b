"""The project's present revision, and the code of an earlier one for rolling upgrades."""

import fcntl
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

from tests.support.revisions import ROOT, environment, sources

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
    source = sources(PREVIOUS, "pyproject.toml")
    environ = environment(source)
    with (source / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _add_entry_points(source)
        if compiled and not (source / "compiled").exists():
            command = [sys.executable, "-m", "kernelcast.bridge.warm_up", "--all"]
            subprocess.run(command, env={**os.environ, **environ}, check=True, capture_output=True)
            (source / "compiled").touch()
    return environ


def _add_entry_points(source: Path) -> None:
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    metadata = source / "core" / f"{project['name']}-0+{PREVIOUS}.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0+{PREVIOUS}\n")
    points = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in named.items())
        for group, named in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(points))
