"""The code of earlier revisions, from this clone's history, in the user's cache directory."""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
ROOTS: Final = ("core", "exporter", "bridge", "predictor", "grafana")
"""Folders with the packages."""


def sources(commit: str, *more: str) -> Path:
    """Return the folder with a revision's packages; they are extracted once on a machine.

    Machine code that is compiled beside them is there with the next run, too. Other processes see the folder only when
    it is complete.

    Args:
        commit: Its hash.
        more: Further files to extract. They are part of the folder's name.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kernelcast"
    directory = cache / "-".join(("revision", commit[:7], *(Path(one).stem for one in more)))
    if not directory.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as partial:
            complete = Path(partial) / "complete"
            _extract(commit, more, complete)
            with suppress(OSError):  # another process was faster
                complete.rename(directory)
    return directory


def environment(source: Path) -> dict[str, str]:
    """Return the variables with which Python imports a revision's packages."""
    return {"PYTHONPATH": os.pathsep.join(str(source / root) for root in ROOTS)}


def _extract(commit: str, more: Sequence[str], directory: Path) -> None:
    archive = ["git", "archive", commit, *ROOTS, *more]
    packed = subprocess.run(archive, cwd=ROOT, capture_output=True, check=True)
    directory.mkdir()
    subprocess.run(["tar", "-x"], cwd=directory, input=packed.stdout, check=True)
